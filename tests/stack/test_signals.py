"""A signal ends its attempt, whatever the code around it does with it; none leaves ``dispatch``."""

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures
import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pydantic
import pytest
import tenacity
from support.attempts import AGENT, attempt, created
from support.faulty_port import FaultyPort

import rebuno_sync as rebuno
from rebuno_sync import errors
from rebuno_sync.agent import Outcome
from rebuno_sync.clock import ManualClock
from rebuno_sync.errors import Signal
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import StepStatus


class Scene:
    """An execution whose attempt can be ended in several ways while its handler runs."""

    def __init__(self, kernel: Kernel, clock: ManualClock) -> None:
        self.kernel = kernel
        self.clock = clock
        self.port = FaultyPort(kernel.agent)
        self.execution_id = created(kernel)
        self.charged: list[str] = []
        self.effect = rebuno.tool("effect")(lambda: "fine")
        self.charge = rebuno.tool("charge")(self._charge)

    def _charge(self, why: str = "") -> None:
        self.charged.append(why)

    def attempt(self, handler: Callable[[], Any]) -> Outcome:
        return attempt(self.kernel, self.execution_id, handler, port=self.port)

    def targets(self) -> list[str]:
        return [step.target for step in self.kernel.list_steps(self.execution_id)]

    # -- the ways to end it

    def cancel(self) -> None:
        self.kernel.cancel(self.execution_id)

    def lose_the_lease(self) -> None:
        self.clock.advance(1000)
        assert self.kernel.claim(self.execution_id) is not None

    def lose_an_answer(self) -> None:
        self.port.lose_request("submit")

    def ask_for_approvals(self) -> None:
        """Of whatever is called from now on."""
        self.kernel.set_policy(AGENT, "rules: [{id: ask, then: {decision: require_approval}}]")


ENDS = {
    "cancel": (Scene.cancel, "terminated"),
    "lost lease": (Scene.lose_the_lease, "lease_superseded"),
    "lost answer": (Scene.lose_an_answer, "interrupted"),
    "approval": (Scene.ask_for_approvals, "blocked"),
}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    clock = ManualClock()
    with Kernel(tmp_path / "kernel.db", clock=clock) as kernel:
        yield Scene(kernel, clock)


# -- C8: the ways to swallow it


def except_exception(effect: Callable[[], object]) -> object:
    try:
        return effect()
    except Exception:
        return None


def bare_except(effect: Callable[[], object]) -> object:
    try:
        return effect()
    except:  # noqa: E722
        return None


def suppress(effect: Callable[[], object]) -> object:
    with contextlib.suppress(BaseException):
        return effect()
    return None


def suppress_exception(effect: Callable[[], object]) -> object:
    with contextlib.suppress(Exception):
        return effect()
    return None


def retried(effect: Callable[[], object]) -> object:
    return bare_except(tenacity.retry(stop=tenacity.stop_after_attempt(3))(effect))


def retried_whatever_it_is(effect: Callable[[], object]) -> object:
    retry = tenacity.retry_if_exception_type(BaseException)
    return bare_except(tenacity.retry(stop=tenacity.stop_after_attempt(3), retry=retry)(effect))


def text_for_the_model(effect: Callable[[], object]) -> object:
    try:
        return effect()
    except BaseException as error:
        return f"Error: {error}. Please try something else."


def another_error(effect: Callable[[], object]) -> object:
    try:
        return effect()
    except BaseException as signal:
        raise RuntimeError("the tool failed") from signal


def another_error_that_is_handled(effect: Callable[[], object]) -> object:
    return except_exception(lambda: another_error(effect))


def in_a_finally_that_returns(effect: Callable[[], object]) -> object:
    class Returns:
        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> bool:
            return True

    with Returns():
        return effect()
    return None


def in_a_pool(effect: Callable[[], object]) -> object:
    with rebuno.ThreadPoolExecutor(2) as pool:
        return pool.submit(bare_except, effect).result()


def in_a_pool_unlooked_at(effect: Callable[[], object]) -> object:
    with rebuno.ThreadPoolExecutor(2) as pool:
        pool.submit(effect)
    return None


def in_a_body(effect: Callable[[], object]) -> object:
    @rebuno.tool
    def outer() -> str:
        return str(bare_except(effect))

    return bare_except(outer)


def in_a_failing_body(effect: Callable[[], object]) -> object:
    @rebuno.tool
    def outer() -> str:
        return str(another_error(effect))

    return bare_except(outer)


def in_asyncio_tasks(effect: Callable[[], object]) -> object:
    async def once() -> None:
        effect()

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(once())
            group.create_task(once())

    return bare_except(lambda: asyncio.run(both()))


SWALLOWS = [
    except_exception,
    bare_except,
    suppress,
    suppress_exception,
    retried,
    retried_whatever_it_is,
    text_for_the_model,
    another_error,
    another_error_that_is_handled,
    in_a_finally_that_returns,
    in_a_pool,
    in_a_pool_unlooked_at,
    in_a_body,
    in_a_failing_body,
    in_asyncio_tasks,
]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("swallow", SWALLOWS)
def test_c8_code_that_swallows_a_signal_performs_no_further_effect(
    scene: Scene, swallow: Callable[[Callable[[], object]], object], end: str
) -> None:
    """``charge`` never runs, what the handler returns is discarded, the outcome is the signal's."""
    finish, status = ENDS[end]

    def handler() -> str:
        scene.effect()
        finish(scene)
        swallow(lambda: scene.charge("inside"))
        scene.charge("after")
        return "a value that must not count"

    outcome = scene.attempt(handler)
    assert (outcome.status, outcome.output, scene.charged) == (status, None, [])
    assert not scene.kernel.get(scene.execution_id).output


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("swallow", SWALLOWS)
def test_c8_a_handler_that_swallows_a_signal_and_returns_completes_nothing(
    scene: Scene, swallow: Callable[[Callable[[], object]], object], end: str
) -> None:
    """No further effect is needed to notice it."""
    finish, status = ENDS[end]

    def handler() -> str:
        finish(scene)
        swallow(scene.effect)
        return "a value that must not count"

    outcome = scene.attempt(handler)
    assert (outcome.status, outcome.output) == (status, None)
    assert "complete" not in scene.port.calls
    assert "fail" not in scene.port.calls


@pytest.mark.parametrize("end", ENDS)
def test_c8_finally_blocks_run_and_an_effect_inside_one_raises(scene: Scene, end: str) -> None:
    """Cleaning up is the handler's right; performing an effect is not."""
    finish, status = ENDS[end]
    cleaned: list[object] = []

    def handler() -> None:
        finish(scene)
        try:
            scene.effect()
        finally:
            cleaned.append("local")
            try:
                scene.charge("in finally")
            finally:
                cleaned.append("still local")

    assert scene.attempt(handler).status == status
    assert cleaned == ["local", "still local"]
    assert scene.charged == []


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    "swallow", [bare_except, another_error_that_is_handled, text_for_the_model]
)
def test_c8_a_body_that_swallows_a_nested_signal_records_nothing(
    scene: Scene, swallow: Callable[[Callable[[], object]], object], end: str
) -> None:
    """Its result was computed without its effect: the step stays open for the next attempt."""
    finish, status = ENDS[end]

    @rebuno.tool
    def outer() -> str:
        finish(scene)
        swallow(scene.effect)
        return "computed without its effect"

    def handler() -> str:
        return outer()

    assert scene.attempt(handler).status == status
    assert "complete_step" not in scene.port.calls
    assert "fail_step" not in scene.port.calls
    [step] = [
        step for step in scene.kernel.list_steps(scene.execution_id) if step.target == "outer"
    ]
    assert step.status == ("cancelled" if end == "cancel" else "executing")
    assert step.result is None


def test_c8_a_sibling_that_met_no_signal_still_records(scene: Scene) -> None:
    """Only what was computed without its effect is thrown away."""
    ended, begun = threading.Event(), threading.Event()

    @rebuno.tool
    def sibling() -> str:
        begun.set()
        ended.wait(20)
        return "sound"

    def handler() -> None:
        with rebuno.ThreadPoolExecutor(2) as pool:
            future = pool.submit(sibling)
            begun.wait(20)
            scene.lose_an_answer()
            bare_except(scene.effect)
            ended.set()
            assert isinstance(future.exception(20), errors.Interrupted)

    assert scene.attempt(handler).status == "interrupted"
    [step] = scene.kernel.list_steps(scene.execution_id)
    assert (step.target, step.status, step.result) == ("sibling", StepStatus.SUCCEEDED, "sound")


# -- what a signal is


def test_every_signal_is_a_base_exception_and_no_exception() -> None:
    """``except Exception`` in a framework does not see one, nor does a provider's retry loop."""
    signals = [
        cls
        for name in errors.__all__
        if inspect.isclass(cls := getattr(errors, name)) and issubclass(cls, Signal)
    ]
    assert len(signals) == 5
    for signal in signals:
        assert issubclass(signal, BaseException)
        assert not issubclass(signal, Exception)


def test_the_ways_to_look_for_a_signal_raise_it(scene: Scene) -> None:
    """``check``, ``wait`` and every effect raise it; ``cancelled`` tells it."""
    seen: list[str] = []

    def handler() -> None:
        context = rebuno.execution()
        assert not context.cancelled
        context.check()
        context.wait(0.01)
        scene.cancel()
        with pytest.raises(errors.Terminated):
            scene.effect()
        assert context.cancelled
        for look in (
            context.check,
            lambda: context.wait(60),
            scene.effect,
            lambda: rebuno.step("local", lambda: 1),
            lambda: rebuno.wrap_tool("wrapped", lambda _: 1)(),
            lambda: context.invoke_tool("own", {}, None),
        ):
            with pytest.raises(errors.Terminated) as caught:
                look()
            seen.append(str(caught.value))

    assert scene.attempt(handler).status == "terminated"
    assert len(seen) == 6
    assert scene.targets() == []


# -- C7 (g) apart, nothing above dispatch() sees a signal


class OfOnesOwn(Signal):
    """A signal that the package does not know."""


class CannotBePrinted(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class EmptyBase(BaseException):
    pass


def builtin_exceptions() -> list[type[Exception]]:
    classes = [
        cls
        for cls in vars(builtins).values()
        if inspect.isclass(cls) and issubclass(cls, Exception)
    ]
    return sorted(set(classes), key=lambda cls: cls.__name__)


def made(cls: type[BaseException]) -> BaseException:
    if issubclass(cls, UnicodeDecodeError):
        return cls("utf-8", b"\xff", 0, 1, "bad")
    if issubclass(cls, UnicodeEncodeError):
        return cls("utf-8", "\ud800", 0, 1, "bad")
    if issubclass(cls, UnicodeTranslateError):
        return cls("\ud800", 0, 1, "bad")
    if issubclass(cls, BaseExceptionGroup):
        return cls("several", [ValueError("one"), KeyError("two")])
    return cls("thrown \ud800 \x00")


RAISED = [
    *builtin_exceptions(),
    *(getattr(errors, name) for name in errors.__all__ if inspect.isclass(getattr(errors, name))),
    OfOnesOwn,
    CannotBePrinted,
]


@pytest.mark.parametrize("cls", RAISED)
@pytest.mark.parametrize("where", ["handler", "tool", "step", "pool"])
def test_whatever_is_raised_dispatch_gives_an_outcome(
    scene: Scene, cls: type[BaseException], where: str
) -> None:
    """Every exception and every signal, from the handler or from inside an effect, is a value."""

    def throw() -> None:
        raise made(cls)

    def handler() -> None:
        if where == "handler":
            throw()
        elif where == "tool":
            rebuno.tool(throw)()
        elif where == "step":
            rebuno.step("throw", throw)
        else:
            with rebuno.ThreadPoolExecutor(2) as pool:
                pool.submit(rebuno.tool(throw)).result()

    outcome = scene.attempt(handler)
    if issubclass(cls, Signal):
        assert outcome.status not in ("completed", "failed")
    else:
        assert outcome.status == "failed"
        assert isinstance(outcome.error, Exception)
        assert scene.kernel.get(scene.execution_id).failure_reason == outcome.reason


@pytest.mark.parametrize(
    "signals", [[errors.Interrupted()], [errors.Blocked(), ValueError("beside it")]]
)
def test_signals_in_a_group_are_an_outcome_too(scene: Scene, signals: list[Any]) -> None:
    """Structured concurrency hands exceptions on in groups; a signal in one is still a signal."""

    def handler() -> None:
        raise BaseExceptionGroup("tasks", signals)

    assert scene.attempt(handler).status == "interrupted"


def test_a_signal_out_of_asyncio_tasks_has_its_own_status(scene: Scene) -> None:
    """The group that a ``TaskGroup`` raises stands for the signal that ended the attempt."""

    async def once() -> None:
        scene.effect()

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(once())

    def handler() -> None:
        scene.cancel()
        asyncio.run(both())

    assert scene.attempt(handler).status == "terminated"


@pytest.mark.parametrize("cls", [EmptyBase, GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("where", ["handler", "body"])
def test_any_other_base_exception_is_a_failure_like_an_exception(
    scene: Scene, cls: type[BaseException], where: str
) -> None:
    """It says nothing of the process: it is recorded, and the effect is not repeated for it."""
    bodies: list[int] = []

    def throw() -> None:
        bodies.append(1)
        raise cls

    def handler() -> None:
        rebuno.tool("struck")(throw)() if where == "body" else throw()

    outcome = scene.attempt(handler)
    assert outcome.status == "failed"
    assert scene.kernel.get(scene.execution_id).status == "failed"
    steps = scene.kernel.list_steps(scene.execution_id)
    assert [step.status for step in steps] == (["failed"] if where == "body" else [])
    assert len(bodies) == 1


@pytest.mark.parametrize("cls", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["handler", "body"])
def test_an_exit_in_a_thread_is_a_failure_like_an_exception(
    scene: Scene, cls: type[BaseException], where: str
) -> None:
    """Only in the main thread it ends the process: anywhere else the attempt would begin again."""

    def throw() -> None:
        raise cls(4)

    def handler() -> None:
        rebuno.tool("struck")(throw)() if where == "body" else throw()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(scene.attempt, handler).result(20)
    assert outcome.status == "failed"
    told = "tool_error: struck: 4" if where == "body" else f"agent_error: {cls.__name__}: 4"
    assert scene.kernel.get(scene.execution_id).failure_reason == told
    steps = scene.kernel.list_steps(scene.execution_id)
    assert [step.status for step in steps] == (["failed"] if where == "body" else [])


@pytest.mark.parametrize("cls", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("where", ["handler", "body"])
def test_an_interrupt_passes_and_gives_the_lease_back(
    scene: Scene, cls: type[BaseException], where: str
) -> None:
    """In the main thread they are not the execution's failure; the step stays as it is."""

    def throw() -> None:
        raise cls

    def handler() -> None:
        rebuno.tool("struck")(throw)() if where == "body" else throw()

    with pytest.raises(cls):
        scene.attempt(handler)
    assert scene.port.calls[-1] == "release"
    assert scene.kernel.get(scene.execution_id).status == "running"
    steps = scene.kernel.list_steps(scene.execution_id)
    assert [step.status for step in steps] == (["executing"] if where == "body" else [])
    outcome = scene.attempt(lambda: rebuno.tool("struck")(lambda: 1)())
    assert outcome.status == "completed"


@pytest.mark.parametrize(
    "value",
    [threading.Lock(), {1, 2}, float("nan"), "\ud800", {1: 2}, object(), lambda: None, [[]] * 3],
)
def test_whatever_is_returned_dispatch_gives_an_outcome(scene: Scene, value: object) -> None:
    """An output that is not JSON fails the execution at once, saying where."""
    outcome = scene.attempt(lambda: value)
    if outcome.status == "failed":
        assert outcome.reason.startswith("output_invalid: output")
    else:
        assert (outcome.status, outcome.output) == ("completed", [[]] * 3)


def test_an_input_that_breaks_its_own_validator_fails_the_execution(scene: Scene) -> None:
    """A validator of the user's that raises something odd is the agent's error, and an outcome."""

    class Odd(pydantic.BaseModel):
        n: int = 0

        @pydantic.field_validator("n")
        @classmethod
        def odd(cls, value: int) -> int:
            raise KeyError("odd")

    def handler(given: Any) -> None:
        pass

    handler.__annotations__["given"] = Odd
    execution_id = created(scene.kernel, {"n": 1})
    outcome = attempt(scene.kernel, execution_id, handler)
    assert outcome.status == "failed"
    assert "KeyError" in outcome.reason
