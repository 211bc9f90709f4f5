"""``tool``, ``step``, ``wrap_tool``: what an effect is called, and what makes it that effect."""

from __future__ import annotations

import functools
import inspect
import pickle
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from support.attempts import background
from support.replays import live_and_replayed, only_step

import rebuno_sync as rebuno
from rebuno_sync import NoActiveExecution, PolicyError, ToolError
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import Step


def recorded(kernel: Kernel, handler: Callable[..., Any], input: object = None) -> list[Step]:
    """Run a handler and return the steps of its execution."""
    rebuno.run(handler, input, kernel=kernel)
    newest = kernel.list(limit=1).executions[0]
    return kernel.list_steps(newest.id)


# -- identity


@rebuno.tool
def search(query: str, limit: int = 10, *, exact: bool = False) -> list[str]:
    """Search for something."""
    return [query] * limit


@pytest.mark.parametrize(
    "call",
    [
        lambda: search("a"),
        lambda: search(query="a"),
        lambda: search("a", 10),
        lambda: search("a", exact=False, limit=10),
    ],
)
def test_a_call_is_identified_by_its_bound_arguments_with_defaults(
    kernel: Kernel, call: Callable[[], Any]
) -> None:
    """However the arguments are passed, they are recorded by parameter name, defaults applied."""
    [step] = recorded(kernel, lambda_named(call))
    assert step.target == "search"
    assert step.kind == "tool_call"
    assert step.args == {"query": "a", "limit": 10, "exact": False}
    assert step.result == ["a"] * 10


def lambda_named(call: Callable[[], Any]) -> Callable[[], None]:
    """A handler of one effect."""

    def handler() -> None:
        call()

    return handler


def test_the_same_call_spelt_differently_replays(kernel: Kernel) -> None:
    """A positional call of the first attempt is met by a keyword call of the second."""
    bodies = []

    @rebuno.tool
    def add(a: int, b: int = 2) -> int:
        bodies.append((a, b))
        return a + b

    spellings: list[Callable[[], int]] = [lambda: add(1), lambda: add(b=2, a=1)]

    def effect() -> int:
        return spellings.pop(0)()

    assert live_and_replayed(kernel, effect) == (3, 3)
    assert bodies == [(1, 2)]


def test_varargs_are_a_list_and_keywords_an_object(kernel: Kernel) -> None:
    """``*args`` and ``**kw`` are recorded under their own names."""

    @rebuno.tool
    def gather(first: int, *rest: int, **named: int) -> int:
        return first + sum(rest) + sum(named.values())

    [step] = recorded(kernel, lambda_named(lambda: gather(1, 2, 3, x=4)))
    assert step.args == {"first": 1, "rest": [2, 3], "named": {"x": 4}}
    assert step.result == 10


def test_identical_calls_get_places_in_the_order_they_are_made(kernel: Kernel) -> None:
    """The second identical call is a step of its own."""
    numbers = iter(range(5))

    @rebuno.tool
    def draw() -> int:
        return next(numbers)

    assert live_and_replayed(kernel, lambda: [draw(), draw(), draw()]) == ([0, 1, 2], [0, 1, 2])
    assert {step.occurrence for step in newest_steps(kernel)} == {0, 1, 2}


def newest_steps(kernel: Kernel) -> list[Step]:
    return kernel.list_steps(kernel.list(limit=1).executions[0].id)


def test_a_body_cannot_change_its_callers_objects(kernel: Kernel) -> None:
    """A replay does not run the body: what it changed would be missing from later calls."""
    given, seen = {"a": [1]}, []

    @rebuno.tool
    def look(value: dict[str, list[int]]) -> None:
        value["a"].append(2)
        seen.append(value)

    recorded(kernel, lambda_named(lambda: look(given)))
    assert seen == [{"a": [1, 2]}]
    assert given == {"a": [1]}


def test_a_call_that_does_not_fit_the_signature_is_pythons_own_type_error(kernel: Kernel) -> None:
    """A missing argument is the caller's mistake: nothing is submitted."""

    def handler() -> None:
        with pytest.raises(TypeError, match="missing a required argument: 'query'"):
            search()  # type: ignore[call-arg]

    assert recorded(kernel, handler) == []


@pytest.mark.parametrize(
    ("argument", "path"),
    [
        ({"items": [1, 2, {"lock": threading.Lock()}]}, "args.value.items[2].lock"),
        (float("nan"), "args.value"),
        ([float("inf")], "args.value[0]"),
        ({"text": "\ud800"}, "args.value.text"),
        ({1: "a"}, "args.value"),
    ],
)
def test_an_argument_that_is_not_json_is_refused_before_anything_is_submitted(
    kernel: Kernel, argument: object, path: str
) -> None:
    """``TypeError`` names the path of the argument; no step and no event comes of the call."""
    bodies: list[object] = []

    @rebuno.tool
    def take(value) -> None:  # type: ignore[no-untyped-def]
        bodies.append(value)

    messages = []

    def handler() -> None:
        for call in (
            lambda: take(argument),
            lambda: rebuno.step("take", take.__wrapped__, {"value": argument}),  # type: ignore[attr-defined]
            lambda: rebuno.wrap_tool("take", bodies.append)(value=argument),
            lambda: rebuno.execution().invoke_tool("take", {"value": argument}, lambda: None),
        ):
            with pytest.raises(TypeError) as caught:
                call()
            messages.append(str(caught.value))

    assert recorded(kernel, handler) == []
    assert bodies == []
    assert len(messages) == 4
    assert all(message.startswith(f"{path}: ") for message in messages), messages
    kinds = [event.type for event in kernel.events(kernel.list().executions[0].id)]
    assert not [kind for kind in kinds if kind.startswith("step.")]


# -- methods


class Shop:
    """Each sort of method, in each order of the decorators."""

    @rebuno.tool
    def method(self, a: int) -> str:
        return f"{type(self).__name__} {a}"

    @classmethod
    @rebuno.tool
    def inner_class(cls, a: int) -> str:
        return f"{cls.__name__} {a}"

    @rebuno.tool
    @classmethod
    def outer_class(cls, a: int) -> str:
        return f"{cls.__name__} {a}"

    @rebuno.tool("named")
    @classmethod
    def outer_named(klass, a: int) -> str:
        return f"{klass.__name__} {a}"

    @staticmethod
    @rebuno.tool
    def inner_static(a: int) -> str:
        return f"static {a}"

    @rebuno.tool
    @staticmethod
    def outer_static(a: int) -> str:
        return f"static {a}"

    @rebuno.tool(idempotency="at_most_once")
    @staticmethod
    def outer_static_once(a: int) -> str:
        return f"static {a}"


class Corner(Shop):
    pass


@pytest.mark.parametrize(
    ("name", "target", "from_instance", "from_class"),
    [
        ("method", "method", "Corner 1", None),
        ("inner_class", "inner_class", "Corner 1", "Corner 1"),
        ("outer_class", "outer_class", "Corner 1", "Corner 1"),
        ("outer_named", "named", "Corner 1", "Corner 1"),
        ("inner_static", "inner_static", "static 1", "static 1"),
        ("outer_static", "outer_static", "static 1", "static 1"),
        ("outer_static_once", "outer_static_once", "static 1", "static 1"),
    ],
)
def test_methods_of_every_sort_are_tools_without_their_receiver(
    kernel: Kernel, name: str, target: str, from_instance: str, from_class: str | None
) -> None:
    """Neither ``self`` nor ``cls`` is recorded, whichever decorator comes first."""
    got = []

    def handler() -> None:
        got.append(getattr(Corner(), name)(1))
        if from_class is not None:
            got.append(getattr(Corner, name)(a=1))

    steps = recorded(kernel, handler)
    assert got == [from_instance] if from_class is None else [from_instance, from_class]
    assert {step.target for step in steps} == {target}
    assert all(step.args == {"a": 1} for step in steps)


def test_an_unbound_method_call_does_not_record_its_instance(kernel: Kernel) -> None:
    """``Shop.method(shop, 1)`` is the effect that ``shop.method(1)`` is."""
    shop = Shop()
    spellings: list[Callable[[], str]] = [lambda: shop.method(1), lambda: Shop.method(shop, 1)]
    live, replayed = live_and_replayed(kernel, lambda: spellings.pop(0)())
    assert live == replayed == "Shop 1"


def test_a_plain_function_may_have_a_parameter_called_self(kernel: Kernel) -> None:
    """Only a function that is defined in a class has a receiver."""

    @rebuno.tool
    def introduce(self: str) -> str:
        return self

    [step] = recorded(kernel, lambda_named(lambda: introduce("me")))
    assert step.args == {"self": "me"}


# -- what is refused at decoration


async def coroutine() -> None:
    pass


async def async_generator() -> AsyncIterator[int]:
    yield 1


def generator() -> Iterator[int]:
    yield 1


class AsyncCall:
    async def __call__(self) -> None:
        pass


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (coroutine, "async"),
        (async_generator, "async"),
        (AsyncCall(), "async"),
        (functools.partial(coroutine), "async"),
        (functools.partial(AsyncCall()), "async"),
        (staticmethod(coroutine), "async"),
        (classmethod(coroutine), "async"),  # type: ignore[arg-type]
        (generator, "generator"),
        (functools.partial(generator), "generator"),
        (staticmethod(generator), "generator"),
    ],
)
def test_what_cannot_be_recorded_is_refused_at_decoration(fn: Any, reason: str) -> None:
    """Async functions and generators are refused with the reason, and with what to write."""
    with pytest.raises(TypeError, match=reason):
        rebuno.tool("late")(fn)


def test_steps_and_wrapped_tools_refuse_async_functions_too(kernel: Kernel) -> None:
    """A body that would not run when it is called is no body."""
    with pytest.raises(TypeError, match="async"):
        rebuno.wrap_tool("late", coroutine)  # type: ignore[arg-type]

    def handler() -> None:
        with pytest.raises(TypeError, match="async"):
            rebuno.step("late", coroutine)

    assert recorded(kernel, handler) == []


@pytest.mark.parametrize("wrong", ["at-most-once", "", None, 1])
def test_an_unknown_idempotency_is_refused_at_decoration(kernel: Kernel, wrong: Any) -> None:
    """A misspelt ``at_most_once`` must not become the weaker promise."""
    with pytest.raises(ValueError, match="at_most_once"):
        rebuno.tool("charge", idempotency=wrong)
    with pytest.raises(ValueError, match="at_most_once"):
        rebuno.wrap_tool("charge", print, idempotency=wrong)

    def handler() -> None:
        with pytest.raises(ValueError, match="at_most_once"):
            rebuno.step("charge", time.time, idempotency=wrong)
        with pytest.raises(ValueError, match="at_most_once"):
            rebuno.execution().invoke_tool("charge", {}, None, idempotency=wrong)

    assert recorded(kernel, handler) == []


def test_a_callable_without_a_name_needs_one() -> None:
    """The error says how to name it."""
    with pytest.raises(TypeError, match=r"@tool\('name'\)"):
        rebuno.tool(functools.partial(search, "a"))


def test_a_named_partial_is_a_tool(kernel: Kernel) -> None:
    """What is bound already shows as a default of the parameters that are left."""
    tool = rebuno.tool("find")(functools.partial(generatorless, b=2))
    [step] = recorded(kernel, lambda_named(lambda: tool(1)))
    assert (step.target, step.args, step.result) == ("find", {"a": 1, "b": 2}, 3)


def generatorless(a: int, b: int) -> int:
    return a + b


# -- what a decorated function still is


def test_a_tool_keeps_name_doc_and_signature() -> None:
    """Frameworks that build a schema from the function see the function."""
    assert search.__name__ == "search"
    assert search.__doc__ == "Search for something."
    assert list(inspect.signature(search).parameters) == ["query", "limit", "exact"]
    assert inspect.getsource(search).startswith("@rebuno.tool\ndef search(")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_tool_of_a_module_can_be_pickled(protocol: int) -> None:
    """It goes to process pools and task queues by reference, as its function would."""
    assert pickle.loads(pickle.dumps(search, protocol)) is search
    method = pickle.loads(pickle.dumps(Shop().method, protocol))
    assert method.__func__ is Shop.method


def test_a_tool_has_the_id_that_it_is_given(kernel: Kernel) -> None:
    """The name in the kernel does not follow the name in the code."""

    @rebuno.tool("charge_card", idempotency="at_most_once")
    def charge() -> None:
        pass

    [step] = recorded(kernel, lambda_named(charge))
    assert (step.target, step.idempotency) == ("charge_card", "at_most_once")


# -- outside an execution


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: search("a"), "tool 'search'"),
        (lambda: rebuno.step("now", time.time), "step 'now'"),
        (lambda: rebuno.wrap_tool("wrapped", print)(), "tool 'wrapped'"),
        (lambda: rebuno.execution(), "execution()"),
    ],
)
def test_an_effect_outside_an_execution_says_why_it_cannot_be(
    call: Callable[[], Any], name: str
) -> None:
    """``NoActiveExecution``, a ``RuntimeError`` too, names the effect and what runs a handler."""
    with pytest.raises(NoActiveExecution) as caught:
        call()
    assert isinstance(caught.value, RuntimeError)
    assert str(caught.value).startswith(f"{name} was called outside an execution")
    assert "rebuno_sync.run()" in str(caught.value)


def test_an_effect_in_a_thread_that_lost_its_execution_says_how_to_carry_it(
    kernel: Kernel,
) -> None:
    """When executions are live in the process, the error names the thread and ``carry``."""
    errors = []

    def handler() -> None:
        with background(lambda: search("a")) as thread:
            pass
        errors.append(thread.raised)

    assert recorded(kernel, handler) == []
    [error] = errors
    assert isinstance(error, NoActiveExecution)
    assert "'background'" in str(error)
    assert "rebuno_sync.carry(fn)" in str(error)
    assert "rebuno_sync.ThreadPoolExecutor" in str(error)


# -- step


def test_a_step_is_local_and_identified_by_the_arguments_it_is_given(kernel: Kernel) -> None:
    """``args`` as they are given, no defaults added, are the payload (protocol.md 13.8)."""

    def read(path: str, encoding: str = "utf-8") -> str:
        return f"{path} in {encoding}"

    def handler() -> None:
        rebuno.step("read", read, {"path": "a.txt"})

    [step] = recorded(kernel, handler)
    assert (step.kind, step.target, step.args) == ("local", "read", {"path": "a.txt"})
    assert step.result == "a.txt in utf-8"


def test_a_step_without_arguments_has_an_empty_payload(kernel: Kernel) -> None:
    """A step of a builtin needs neither arguments nor a signature."""
    [step] = recorded(kernel, lambda_named(lambda: rebuno.step("started", time.time)))
    assert step.args == {}
    assert isinstance(step.result, float)


def test_a_step_takes_arguments_for_a_function_without_a_signature(kernel: Kernel) -> None:
    """The payload has names of its own, so the function's signature is not needed."""
    [step] = recorded(kernel, lambda_named(lambda: rebuno.step("made", dict, {"a": 1})))
    assert (step.args, step.result) == ({"a": 1}, {"a": 1})


def test_a_step_encodes_arguments_by_the_functions_annotations(kernel: Kernel) -> None:
    """A set under ``set[str]`` is recorded as a sorted list."""

    def count(words: set[str]) -> int:
        return len(words)

    words = {"b", "a", "c"}
    [step] = recorded(kernel, lambda_named(lambda: rebuno.step("count", count, {"words": words})))
    assert (step.args, step.result) == ({"words": ["a", "b", "c"]}, 3)


# -- wrap_tool

SCHEMA = {
    "type": "object",
    "properties": {
        "to": {"type": "string"},
        "from": {"type": "string"},
        "subject": {"type": "string"},
        "reply-to": {"type": "string"},
    },
    "required": ["to"],
}


def test_a_wrapped_tool_describes_itself() -> None:
    """Name, text, signature and schema are those of the library's tool (protocol.md 13.8)."""
    send = rebuno.wrap_tool(
        "send", dict, description="Send.", args_schema=SCHEMA, idempotency="at_most_once"
    )
    assert (send.__name__, send.__doc__) == ("send", "Send.")
    assert send.__input_schema__ == SCHEMA
    assert send.__idempotency__ == "at_most_once"
    assert type(send.__idempotency__) is str
    parameters = inspect.signature(send).parameters
    assert {name: item.default for name, item in parameters.items()} == {
        "to": inspect.Parameter.empty,
        "subject": None,
    }
    assert {item.kind for item in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}


def test_a_wrapped_tool_records_what_is_passed_and_takes_no_positions(kernel: Kernel) -> None:
    """Names that are no Python identifiers are passed by ``**``; defaults are not made up."""
    calls = []

    def invoke(arguments: dict[str, Any]) -> str:
        calls.append(arguments)
        return "sent"

    send = rebuno.wrap_tool("send", invoke, args_schema=SCHEMA)

    def handler() -> str:
        with pytest.raises(TypeError, match="positional"):
            send("ada")
        return send(to="ada", **{"reply-to": "bob", "from": "eve"})  # type: ignore[no-any-return]

    [step] = recorded(kernel, handler)
    assert step.args == {"to": "ada", "reply-to": "bob", "from": "eve"}
    assert calls == [step.args]


def test_a_wrapped_tool_transforms_its_arguments_and_its_result(kernel: Kernel) -> None:
    """What is recorded, and what is invoked, are the arguments after ``transform_args``; the
    result is recorded after ``to_result``."""
    invoked = []

    def invoke(arguments: dict[str, Any]) -> object:
        invoked.append(arguments)
        return threading.Lock()

    lookup = rebuno.wrap_tool(
        "lookup",
        invoke,
        transform_args=lambda given: {k: v for k, v in given.items() if v is not None},
        to_result=lambda value: {"kind": type(value).__name__},
    )
    live, replayed = live_and_replayed(kernel, lambda: lookup(a=1, b=None))
    assert live == replayed == {"kind": "lock"}
    assert invoked == [{"a": 1}]
    assert only_step(kernel).args == {"a": 1}


# -- refusals


def indeterminate(kernel: Kernel, call: Callable[[], Any]) -> list[Any]:
    """What an ``at_most_once`` call gives that was cut down, and what an identical one after it."""
    got: list[Any] = []

    def handler() -> None:
        for _ in range(2):
            try:
                got.append(call())
            except Exception as error:
                got.append(error)

    with pytest.raises(KeyboardInterrupt):
        rebuno.run(handler, key="cut-down", kernel=kernel)
    rebuno.run(handler, key="cut-down", kernel=kernel)
    return got


def cut_down() -> None:
    """The body of an effect that does not live to return."""
    raise KeyboardInterrupt


REFUSAL = "prior attempt outcome unknown; retry refused"


def denial_of(name: str) -> str:
    return f"{name} not allowed. reason: [policy_denied] {REFUSAL} (HTTP 403)"


@pytest.mark.parametrize(
    "tool",
    [
        rebuno.tool("charge", idempotency="at_most_once")(cut_down),
        rebuno.wrap_tool("charge", lambda _: cut_down(), idempotency="at_most_once"),
    ],
)
def test_a_denied_tool_returns_a_text_for_the_model(
    kernel: Kernel, tool: Callable[[], Any]
) -> None:
    """The second identical call after an unknown outcome is refused, in words."""
    unknown, refused = indeterminate(kernel, tool)
    assert isinstance(unknown, ToolError)
    assert (unknown.reason, unknown.tool_id) == ("indeterminate", "charge")
    assert "outcome unknown" in str(unknown)
    assert refused == denial_of("charge")


def test_a_denied_step_raises(kernel: Kernel) -> None:
    """``PolicyError`` names the rule; it is for code to handle, not for a model to read."""
    unknown, refused = indeterminate(
        kernel, lambda: rebuno.step("charge", cut_down, idempotency="at_most_once")
    )
    assert isinstance(unknown, ToolError)
    assert isinstance(refused, PolicyError)
    assert (refused.message, refused.rule_id) == (REFUSAL, "__indeterminate_retry")


def test_a_denial_replays(kernel: Kernel) -> None:
    """The refusal is recorded, so a later attempt gets the same text."""
    charge = rebuno.tool("charge", idempotency="at_most_once")(cut_down)
    texts: list[str] = []

    def handler() -> None:
        with pytest.raises(ToolError):
            charge()
        texts.append(charge())  # type: ignore[func-returns-value, arg-type]
        if len(texts) == 1:
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            rebuno.run(handler, key="cut-down", kernel=kernel)
    rebuno.run(handler, key="cut-down", kernel=kernel)
    assert texts == [denial_of("charge")] * 2


# -- nested effects


def test_nested_effects_are_recorded_once_and_replayed_under_the_outer_one(kernel: Kernel) -> None:
    """A replay of the outer effect does not reach the inner ones."""
    bodies: list[str] = []

    @rebuno.tool
    def inner(n: int) -> int:
        bodies.append(f"inner {n}")
        return n * 10

    @rebuno.tool
    def outer() -> int:
        bodies.append("outer")
        return inner(1) + inner(2) + rebuno.step("three", lambda: 3)

    assert live_and_replayed(kernel, outer) == (33, 33)
    assert bodies == ["outer", "inner 1", "inner 2"]
    assert sorted(step.target for step in newest_steps(kernel)) == [
        *("inner", "inner", "outer", "three")
    ]


def test_an_outer_effect_that_was_cut_down_replays_its_inner_ones(kernel: Kernel) -> None:
    """What an inner effect had recorded is not done again when the outer body runs again."""
    bodies: list[str] = []

    @rebuno.tool
    def inner() -> str:
        bodies.append("inner")
        return "done"

    @rebuno.tool
    def outer() -> str:
        bodies.append("outer")
        text = inner()
        if bodies.count("outer") == 1:
            raise KeyboardInterrupt
        return text

    with pytest.raises(KeyboardInterrupt):
        rebuno.run(handler_of(outer), key="k", kernel=kernel, agent="nested")
    assert rebuno.run(handler_of(outer), key="k", kernel=kernel, agent="nested") == "done"
    assert bodies == ["outer", "inner", "outer"]


def handler_of(effect: Callable[[], Any]) -> Callable[[], Any]:
    def handler() -> Any:
        return effect()

    return handler


def test_an_inner_effects_failure_fails_the_outer_one_unless_it_is_handled(kernel: Kernel) -> None:
    """The outer ``ToolError`` has the inner one as its cause, which has the body's exception."""

    @rebuno.tool
    def inner() -> None:
        raise ValueError("no such thing")

    @rebuno.tool
    def outer(careful: bool) -> str:
        try:
            inner()
        except ToolError:
            if not careful:
                raise
        return "fine"

    live, replayed = live_and_replayed(kernel, lambda: outer(False))
    for error in (live, replayed):
        assert isinstance(error, ToolError)
        assert (error.tool_id, str(error)) == ("outer", "outer: inner: no such thing")
        cause = error.__cause__
        assert isinstance(cause, ToolError)
        assert (cause.tool_id, cause.message) == ("inner", "no such thing")
    assert live_and_replayed(kernel, lambda: outer(True)) == ("fine", "fine")


def test_an_effect_of_a_body_that_has_ended_is_refused(kernel: Kernel) -> None:
    """A thread that outlives its effect's body cannot add to what is recorded already."""
    go_on = threading.Event()
    errors = []

    def late() -> None:
        go_on.wait(20)
        search("late")

    @rebuno.tool
    def outer() -> None:
        thread = background(rebuno.carry(late))
        threads.append((thread, thread.__enter__()))

    threads: list[Any] = []

    def handler() -> None:
        outer()
        go_on.set()
        manager, thread = threads.pop()
        manager.__exit__(None, None, None)
        errors.append(thread.raised)

    assert [step.target for step in recorded(kernel, handler)] == ["outer"]
    [error] = errors
    assert isinstance(error, NoActiveExecution)
    assert "outlived" in str(error)
