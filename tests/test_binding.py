"""An execution's input reaches its handler by the handler's signature (protocol.md 13.6)."""

from __future__ import annotations

import functools
import json
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Annotated, Any, Dict  # noqa: UP035  the old name is a promise too

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from rebuno_sync.binding import Binding, InputInvalid

WHEN = datetime(2024, 1, 2, tzinfo=UTC)


class Order(BaseModel):
    when: datetime
    tags: set[str] = set()
    count: int = Field(1, alias="howMany")


class Lenient(BaseModel):
    text: str = "d"


@dataclass
class Spot:
    x: int


def by_model(order: Order) -> None: ...
def by_annotated_model(order: Annotated[Order, "the order"]) -> None: ...
def by_name(prompt: str, when: datetime, tags: set[str] = frozenset(), *, n: int = 3) -> None: ...  # type: ignore[assignment]
def by_dict(data: dict) -> None: ...  # type: ignore[type-arg]
def by_any(data: Any) -> None: ...
def untyped(data): ...  # type: ignore[no-untyped-def]
def by_old_dict(data: Dict) -> None: ...  # type: ignore[type-arg]  # noqa: UP006
def by_typed_dict(data: dict[str, int]) -> None: ...
def by_optional_model(order: Order | None) -> None: ...
def by_two_models(order: Order, other: Order) -> None: ...
def nothing() -> None: ...
def only_keywords(**more: int) -> None: ...
def some_positional(first: int, second: int = 2, /, third: int = 3) -> None: ...
def some_variadic(first: int, *rest: int, **more: int) -> None: ...
def unknown_name(data: Unknown, n: int) -> None: ...  # type: ignore[name-defined]  # noqa: F821


class Service:
    def handle(self, n: int) -> set[str]: ...

    def __call__(self, data: dict) -> None: ...  # type: ignore[type-arg]


@pytest.mark.parametrize(
    ("handler", "shape"),
    [
        (by_model, "model"),
        (by_annotated_model, "model"),
        (by_dict, "raw"),
        (by_any, "raw"),
        (untyped, "raw"),
        (by_old_dict, "raw"),
        (Service(), "raw"),
        (functools.partial(lambda a, b: None, 1), "raw"),
        (by_typed_dict, "kwargs"),
        (by_optional_model, "kwargs"),
        (by_two_models, "kwargs"),
        (by_name, "kwargs"),
        (nothing, "kwargs"),
        (only_keywords, "kwargs"),
        (Service().handle, "kwargs"),
    ],
)
def test_the_signature_decides_how_the_input_is_given(
    handler: Callable[..., object], shape: str
) -> None:
    assert Binding(handler).shape == shape


def bound(handler: Callable[..., object], value: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return Binding(handler).bind(json.dumps(value))


def test_a_model_takes_the_whole_input() -> None:
    args, kwargs = bound(by_model, {"when": "2024-01-02T00:00:00Z", "tags": ["a"], "howMany": "2"})
    assert (args, kwargs) == ((), {"order": Order(when=WHEN, tags={"a"}, howMany=2)})


@pytest.mark.parametrize("value", [[], 3, "x", None, {"when": "soon"}])
def test_a_model_that_does_not_fit_says_what_pydantic_says(value: object) -> None:
    with pytest.raises(
        InputInvalid, match=r"^input validation failed: 1 validation error for Order\nwhen"
    ):
        bound(by_model, value)


@pytest.mark.parametrize("handler", [by_dict, by_any, untyped, by_old_dict])
@pytest.mark.parametrize("value", [{"a": 1.0, "b": [None]}, [1], None, "x"])
def test_raw_input_is_given_unchanged(handler: Callable[..., object], value: object) -> None:
    assert bound(handler, value) == ((), {"data": value})


def test_members_are_read_by_the_annotations_and_the_rest_is_dropped() -> None:
    value = {"prompt": "p", "when": "2024-01-02T00:00:00Z", "tags": ["a", "a"], "n": "5", "more": 1}
    assert bound(by_name, value) == ((), {"prompt": "p", "when": WHEN, "tags": {"a"}, "n": 5})


def test_what_has_a_default_may_be_left_out() -> None:
    args, kwargs = bound(by_name, {"prompt": "p", "when": "2024-01-02T00:00:00Z"})
    assert (args, set(kwargs)) == ((), {"prompt", "when"})


@pytest.mark.parametrize("value", [{"n": 1}, None])
def test_missing_members_are_named_in_the_order_of_the_signature(value: object) -> None:
    with pytest.raises(InputInvalid, match=r"^missing required input fields: prompt, when$"):
        bound(by_name, value)


@pytest.mark.parametrize("value", [[], 3, "prompt"])
def test_what_is_no_object_has_no_members_and_is_told_so(value: object) -> None:
    """It counts as an empty one (protocol.md 13.6)."""
    told = r"^missing required input fields: prompt, when \(the input is no object with .*\)$"
    with pytest.raises(InputInvalid, match=told):
        bound(by_name, value)


def defaulted(data: str = "d") -> None: ...
def defaulted_model(data: Lenient) -> None: ...


@pytest.mark.parametrize("handler", [defaulted, defaulted_model, nothing])
@pytest.mark.parametrize("value", [[1], 3, "text"])
def test_an_input_of_which_nothing_is_taken_is_not_dropped_silently(
    handler: Callable[..., object], value: object, caplog: pytest.LogCaptureFixture
) -> None:
    """An agent warns of it, and `run` refuses it."""
    bound(handler, value)
    assert "the input is no object, so nothing of it is taken" in caplog.text
    with pytest.raises(InputInvalid, match="no object"):
        Binding(handler).refuse_dropped(json.dumps(value))
    Binding(handler).refuse_dropped("null")
    Binding(untyped).refuse_dropped(json.dumps(value))


@pytest.mark.parametrize("handler", [untyped, by_dict])
def test_whoever_may_have_meant_a_member_is_told_once_that_the_whole_input_is_taken(
    handler: Callable[..., object], caplog: pytest.LogCaptureFixture
) -> None:
    binding = Binding(handler)
    assert binding.bind('{"x": 1}') == ((), {"data": {"x": 1}})
    assert caplog.records == []
    for _ in range(2):
        assert binding.bind('{"data": 1}') == ((), {"data": {"data": 1}})
    [record] = caplog.records
    assert "takes the whole input as data" in record.getMessage()
    assert "data: str" in record.getMessage()


def test_every_member_that_does_not_fit_is_named() -> None:
    with pytest.raises(InputInvalid) as caught:
        bound(by_name, {"prompt": 1, "when": WHEN.isoformat(), "tags": ["a", 2], "n": "x"})
    assert re.fullmatch(
        r"input validation failed: prompt: .*valid string; tags\.1: .*valid string; n: .*integer.*",
        str(caught.value),
    )


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_a_handler_without_parameters_takes_any_input(value: object) -> None:
    assert bound(nothing, value) == bound(only_keywords, value) == ((), {})


def test_what_can_only_come_by_position_comes_by_position() -> None:
    assert bound(some_positional, {"first": 1, "third": 4}) == ((1, 2), {"third": 4})
    assert bound(some_positional, {"first": 1, "second": "7"}) == ((1, 7), {})
    assert bound(some_variadic, {"first": 1, "rest": [1], "more": {}}) == ((), {"first": 1})


def test_an_annotation_that_names_nothing_known_takes_any_value() -> None:
    assert bound(unknown_name, {"data": {"a": [1]}, "n": "2"}) == (
        (),
        {"data": {"a": [1]}, "n": 2},
    )


def test_what_is_bound_already_is_not_asked_for() -> None:
    assert bound(Service().handle, {"n": "4"}) == ((), {"n": 4})
    assert bound(functools.partial(by_name, "p"), {"when": WHEN.isoformat()})[1] == {"when": WHEN}


async def asynchronous() -> None: ...


async def asynchronous_generator() -> AsyncIterator[int]:
    yield 1


def generator() -> Iterator[int]:
    yield 1


class AsyncService:
    async def __call__(self, n: int) -> None: ...


def only_position(*args: int) -> None: ...


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (asynchronous, "asynchronous is async; a handler is an ordinary function"),
        (asynchronous_generator, "asynchronous_generator is async"),
        (functools.partial(asynchronous), "asynchronous is async"),
        (AsyncService(), "AsyncService is async"),
        (generator, "generator is a generator; a handler returns its output"),
        (only_position, "only_position takes only *args, but an input has names"),
    ],
)
def test_what_cannot_be_a_handler_is_refused_at_once(
    handler: Callable[..., object], message: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        Binding(handler)


# What a caller passes.


def test_an_input_is_written_by_the_annotations_that_read_it() -> None:
    binding = Binding(by_name)
    text = binding.encode_input({"prompt": "p", "when": WHEN, "tags": {"b", "a"}, "more": [1]})
    assert json.loads(text) == {
        "prompt": "p",
        "when": "2024-01-02T00:00:00Z",
        "tags": ["a", "b"],
        "more": [1],
    }
    assert binding.bind(text)[1]["when"] == WHEN


@pytest.mark.parametrize(
    "value",
    [
        Order(when=WHEN, tags={"b", "a"}, howMany=2),
        {"when": WHEN, "tags": {"b", "a"}, "howMany": 2},
        {"when": WHEN.isoformat(), "tags": ["a", "b"], "howMany": 2},
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_model_s_input_may_be_the_model_or_its_members(value: object) -> None:
    binding = Binding(by_model)
    [order] = binding.bind(binding.encode_input(value))[1].values()
    assert order == Order(when=WHEN, tags={"a", "b"}, howMany=2)


@pytest.mark.parametrize("handler", [by_model, by_name, by_dict, nothing])
def test_no_input_is_null(handler: Callable[..., object]) -> None:
    assert Binding(handler).encode_input(None) == "null"


@pytest.mark.parametrize(
    ("handler", "value", "message"),
    [
        (by_name, {"more": {"when": WHEN}}, "input.more.when: datetime is not JSON; annotate"),
        (by_name, {"when": [threading.Lock()]}, "input.when[0]: lock is not JSON"),
        (by_name, {"prompt": "\ud800"}, "input.prompt: the text holds a lone surrogate"),
        (by_name, {1: 2}, "input: the key 1 is not a str"),
        (by_dict, {"a": {1, 2}}, "input.a: set is not JSON"),
        (by_model, {"when": threading.Lock()}, "input.when: lock is not JSON"),
        (nothing, threading.Lock(), "input: lock is not JSON"),
    ],
    ids=lambda given: "",
)
def test_an_input_that_cannot_be_written_is_refused_by_its_path(
    handler: Callable[..., object], value: object, message: str
) -> None:
    with pytest.raises(TypeError, match="^" + re.escape(message)):
        Binding(handler).encode_input(value)


# What a handler says of itself.


def test_the_schema_of_members_says_which_are_required() -> None:
    def handler(prompt: str, day: date, spot: Spot, tags: set[str], n: int = 3, x: Any = print): ...  # type: ignore[no-untyped-def]

    schema = Binding(handler).schema()
    assert schema is not None
    assert schema["type"] == "object"
    assert schema["required"] == ["prompt", "day", "spot", "tags"]
    assert schema["properties"]["prompt"] == {"type": "string"}
    assert schema["properties"]["day"]["format"] == "date"
    assert schema["properties"]["n"] == {"type": "integer", "default": 3}
    assert "default" not in schema["properties"]["x"]
    assert schema["properties"]["spot"] == {"$ref": "#/$defs/Spot"}
    assert schema["$defs"]["Spot"]["properties"]["x"]["type"] == "integer"


def test_the_schema_of_a_model_is_the_model_s() -> None:
    assert Binding(by_model).schema() == Order.model_json_schema()


def test_raw_input_has_no_schema() -> None:
    assert Binding(by_dict).schema() is None


def test_no_parameters_are_an_object_without_members() -> None:
    assert Binding(nothing).schema() == {"type": "object", "properties": {}}


def test_what_pydantic_cannot_describe_has_no_schema() -> None:
    def handler(lock: threading.Lock, n: int) -> None: ...

    assert Binding(handler).schema() is None
    assert bound(handler, {"lock": 1, "n": "2"}) == ((), {"lock": 1, "n": 2})


def test_the_output_is_read_by_the_return_annotation() -> None:
    assert Binding(Service().handle).output.decode('["a"]') == {"a"}
