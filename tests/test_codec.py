"""What is stored is what returns, type for type; what cannot be is refused by its path."""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypeVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    computed_field,
    field_serializer,
)
from support.labels import label
from typing_extensions import TypedDict

from rebuno_sync.canonical import canonicalize
from rebuno_sync.codec import (
    PLAIN,
    arguments_codec,
    codec_for,
    encode_plain_arguments,
    return_codec,
)
from rebuno_sync.strict import MAX_DEPTH

T = TypeVar("T")
LETTERS = set("abcdefgh")


class Color(Enum):
    RED = "r"
    BLUE = "b"


class Level(IntEnum):
    LOW = 1


class Word(StrEnum):
    HELLO = "hello"


class Part(BaseModel):
    tags: set[str]
    raw: bytes = b"\xff\x00"
    more: Any = None


class Sub(Part):
    extra: int = 3


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    parts: list[Part]
    when: datetime = Field(alias="whenWas")
    size: float = Field(1.0, validation_alias=AliasChoices(AliasPath("a", 0), "s"))
    deep: int = Field(1, validation_alias=AliasPath("b", 0))
    shown: int = Field(2, serialization_alias="Shown")
    colors: dict[int, frozenset[Color]] = {}

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> float:
        return self.size * 2


class Pair(NamedTuple):
    number: int
    tags: set[str]
    raw: bytes = b"\xff"


@dataclass
class Box:
    pair: Pair
    part: Part
    made: int = field(init=False, default=3)
    day: tuple[int, date] | None = None


@dataclass(frozen=True)
class Point:
    x: int


class Row(TypedDict):
    a: int
    day: NotRequired[date]


class Page(BaseModel, Generic[T]):
    of: T


class Cat(BaseModel):
    kind: Literal["cat"] = Field(alias="type")
    lives: set[int]


class Dog(BaseModel):
    kind: Literal["dog"] = Field(alias="type")
    lives: set[int]


class Tree(BaseModel):
    kids: list[Tree] = []
    tags: set[str] = set()


class Tags(RootModel[set[str]]):
    pass


class Year(BaseModel):
    of: datetime

    @field_serializer("of")
    def _year(self, value: datetime) -> str:
        return value.isoformat()


class Keeper(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    lock: type(threading.Lock()) | None = None  # type: ignore[valid-type]
    more: Any = None


PART = Part(tags=LETTERS, more={"x": [1, None]})
WHEN = datetime(2024, 1, 2, 3, 4, 5, 6)  # noqa: DTZ001  naive ones are promised too
ID = UUID("019a2b3c-4d5e-7f60-8123-456789abcdef")

EXACT: list[tuple[Any, object]] = [
    (Item, Item(parts=[PART], whenWas=WHEN, s=1e-05, colors={3: frozenset(Color)})),
    (Part, PART),
    (Sub, Sub(tags=set())),
    (list[Box], [Box(Pair(1, LETTERS), PART, day=(1, date(2020, 1, 1)))]),
    (Box | None, None),
    (Part | Box, PART),
    (Pair, Pair(1, LETTERS)),
    (Row, {"a": 1, "day": date(2020, 1, 1)}),
    (Row, {"a": 1, "unknown": [1]}),
    (Page[set[int]], Page[set[int]](of={1, 2})),
    (Annotated[Cat | Dog, Field(discriminator="kind")], Dog(type="dog", lives={1})),
    (Tree, Tree(kids=[Tree(tags=LETTERS)])),
    (Tags, Tags(LETTERS)),
    (Year, Year(of=WHEN)),
    (set[Point], {Point(1), Point(2)}),
    (Color, Color.RED),
    (Level, Level.LOW),
    (Word, Word.HELLO),
    (dict[Color, int], {Color.RED: 1}),
    (UUID, ID),
    (dict[UUID, int], {ID: 1}),
    (Decimal, Decimal("1.10")),
    (Decimal, Decimal("1E+10")),
    (datetime, WHEN),
    (datetime, WHEN.replace(tzinfo=UTC)),
    (datetime, WHEN.replace(tzinfo=timezone(timedelta(hours=-5, minutes=-30)))),
    (date, date(1, 1, 1)),
    (time, time(3, 4, 5, 6)),
    (timedelta, timedelta(days=-400, microseconds=1)),
    (dict[date, bytes], {date(2000, 1, 1): b"\xff"}),
    (set[int], {3, 1, 2}),
    (set, {"a", 1, None, 2.5}),
    (frozenset[str], frozenset(LETTERS)),
    (dict[str, set[frozenset[int]]], {"a": {frozenset({1, 2}), frozenset()}}),
    (Sequence[set[int]], [{1}]),
    (Mapping[str, set[int]], {"a": {1}}),
    (bytes, b"\xff"),
    (list[bytes], [b"\xff", b""]),
    (Path, Path("/a/b")),
    (tuple[int, ...], (1, 2)),
    (tuple[int, str], (1, "x")),
    (tuple, (1, "x")),
    (int, 2**70),
    (dict[int, str], {1: "a", 2**60: "b"}),
    (dict[int, set[int]], {1: {1}}),
    (bool, True),
    (None, None),
    (str | int, 5),
    (int | set[int], {1, 2}),
    (Literal["a", 1], 1),
    (list[float], [1.0, 1e22, -0.0, 1e-05]),
    (dict[str, Any], {"a": [1, {"b": None}]}),
    (complex, 1 + 2j),
]


@pytest.mark.parametrize(("annotation", "value"), EXACT, ids=label)
def test_an_annotated_value_comes_back_of_its_own_type(annotation: Any, value: object) -> None:
    codec = codec_for(annotation)
    again = codec.decode(codec.encode(value, "result"))
    assert again == value
    assert type(again) is type(value)
    assert codec.encode(again, "result") == codec.encode(value, "result")


@pytest.mark.parametrize(("annotation", "value"), EXACT, ids=label)
def test_a_kernel_may_reorder_the_text(annotation: Any, value: object) -> None:
    """A kernel on Postgres gives keys back in another order (protocol.md 15, 33)."""
    codec = codec_for(annotation)
    assert codec.decode(canonicalize(codec.encode(value, "result"))) == value


texts = st.text(st.characters(exclude_categories=["Cs"]))
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | texts | st.floats(allow_nan=False, width=64),
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=10,
).filter(lambda value: "Infinity" not in json.dumps(value))


def exactly(annotation: Any, value: object) -> None:
    codec = codec_for(annotation)
    again = codec.decode(codec.encode(value, "result"))
    assert again == value
    assert repr(again) == repr(value)


@given(plain)
def test_any_json_comes_back_as_it_was(value: object) -> None:
    exactly(Any, value)
    assert codec_for(Part).decode(codec_for(Part).encode(Part(tags=set(), more=value), "x")) == (
        Part(tags=set(), more=value)
    )


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_float_is_exact_and_written_as_json_writes_it(value: float) -> None:
    exactly(float, value)
    for annotation in (float, list[float], Page[float]):
        wrapped: Any = {float: value, list[float]: [value]}.get(annotation, Page[float](of=value))
        assert json.dumps(value) in codec_for(annotation).encode(wrapped, "x")


@given(st.integers(), st.decimals(allow_nan=False, allow_infinity=False), st.binary(), st.uuids())
def test_any_number_bytes_and_id_are_exact(i: int, d: Decimal, b: bytes, u: UUID) -> None:
    exactly(dict[int, tuple[Decimal, bytes, UUID]], {i: (d, b, u)})


@given(st.datetimes(), st.dates(), st.times(), st.timedeltas())
def test_any_time_is_exact(when: datetime, day: date, at: time, span: timedelta) -> None:
    """But for ``fold``, which no text of a naive time holds."""
    when, at = when.replace(fold=0), at.replace(fold=0)
    exactly(tuple[datetime, date, time, timedelta], (when, day, at, span))


@given(st.sets(st.integers() | texts))
def test_any_set_is_sorted_by_its_elements_json(value: set[int | str]) -> None:
    codec = codec_for(set[int | str])
    written = json.loads(codec.encode(value, "x"))
    assert written == sorted(written, key=lambda item: canonicalize(json.dumps(item)))
    assert codec.decode(codec.encode(value, "x")) == value


@pytest.mark.parametrize("value", [1e-05, 1e16, -0.0, 0.1, 3.0, 1e22, 5e-324])
def test_a_float_has_one_text_on_every_path(value: float) -> None:
    def plainly(x): ...  # type: ignore[no-untyped-def]
    def simply(x: float) -> None: ...
    def by_model(x: Page[float]) -> None: ...

    number = json.dumps(value)
    assert codec_for(float).encode(value, "x") == PLAIN.encode(value, "x") == number
    assert arguments_codec(plainly).encode((value,), {}) == f'{{"x":{number}}}'
    assert arguments_codec(simply).encode((value,), {}) == f'{{"x":{number}}}'
    page = Page[float](of=value)
    assert arguments_codec(by_model).encode((page,), {}) == f'{{"x":{{"of":{number}}}}}'


def test_the_text_keeps_the_values_own_order() -> None:
    assert PLAIN.encode({"b": 1, "a": (2, "é")}, "x") == '{"b":1,"a":[2,"é"]}'
    assert codec_for(Row).encode({"day": date(2020, 1, 1), "a": 1}, "x").startswith('{"day"')


def test_without_an_annotation_a_tuple_comes_back_as_a_list() -> None:
    assert PLAIN.decode(PLAIN.encode((1, Level.LOW, Word.HELLO), "x")) == [1, 1, "hello"]
    assert type(PLAIN.decode(PLAIN.encode(Level.LOW, "x"))) is int


def test_a_subclass_is_written_as_what_is_annotated() -> None:
    again = codec_for(Part).decode(codec_for(Part).encode(Sub(tags={"a"}), "x"))
    assert type(again) is Part


IN_MANY_PROCESSES = """
from tests.test_codec import *
def f(tags: set[str], names: frozenset[str], item: Item, box: Box, wrong: list[str]): ...
item = Item(parts=[PART], whenWas=WHEN, colors={1: frozenset(Color)})
box = Box(Pair(1, LETTERS), PART)
print(arguments_codec(f).encode((LETTERS, frozenset(LETTERS), item, box, LETTERS), {}))
"""


def test_a_set_has_one_text_in_every_process() -> None:
    texts = set()
    for seed in "0", "1", "2", "3":
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": f".{os.pathsep}tests"}
        root = Path(__file__).parent.parent
        command = [sys.executable, "-c", IN_MANY_PROCESSES]
        texts.add(subprocess.check_output(command, env=environment, cwd=root, text=True))
    assert len(texts) == 1
    assert '"tags":["a","b","c","d","e","f","g","h"]' in texts.pop()


# What cannot be stored.

LOOP: list[object] = []
LOOP.append(LOOP)
LOCK = threading.Lock()


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


REFUSED: list[tuple[Any, object, str]] = [
    (Any, {"a": [1, {"lock": LOCK}]}, "x.a[1].lock: lock is not JSON; annotate it with its type"),
    (Any, {1, 2}, "x: set is not JSON; annotate it with its type"),
    (Any, WHEN, "x: datetime is not JSON; annotate it with its type"),
    (Any, PART, "x: Part is not JSON; annotate it with its type"),
    (Any, {1: 2}, "x: the key 1 is not a str; annotate dict[int, ...]"),
    (Any, 10**5000, "x: an int of more than 4,300 digits"),
    (Any, [float("nan")], "x[0]: nan is not JSON"),
    (Any, "\ud800", "x: the text holds a lone surrogate"),
    (Any, {"a": {"\udfff": 1}}, "x.a: the key '\\udfff' holds a lone surrogate"),
    (Any, LOOP, "x[0]: contains itself"),
    (Any, nested(MAX_DEPTH + 1), f"nested deeper than {MAX_DEPTH} levels"),
    (Any, nested(50_000), f"nested deeper than {MAX_DEPTH} levels"),
    (list, LOOP, "contains itself"),
    (list, nested(MAX_DEPTH + 1), f"nested deeper than {MAX_DEPTH} levels"),
    (dict, {1: 2}, "x: the key 1 is not a str"),
    (dict[str, dict], {"a": {1: 2}}, "x.a: the key 1 is not a str"),
    (dict[str, Any], {"a": [{"when": WHEN}]}, "x.a[0].when: datetime is not JSON; annotate"),
    (list[float], [1.0, float("inf")], "x[1]: inf is not JSON"),
    (dict[str, float], {"a b": float("nan")}, "x['a b']: nan is not JSON"),
    (set[float], {float("nan")}, "nan is not JSON"),
    (Page[float], Page[float](of=float("nan")), "x.of: nan is not JSON"),
    (list[Part], [PART, Part(tags={"\ud800"})], "x[1].tags[0]: the text holds a lone surrogate"),
    (dict[int, dict], {1: {1: 2}}, "x[1]: the key 1 is not a str"),
    (dict[int, dict[int, list]], {1: {2: [LOCK]}}, "x[1][2][0]: lock is not JSON"),
    (dict[str, int], {"\ud800": 1}, "x: the key '\\ud800' holds a lone surrogate"),
    (dict[str, set[int]], {"\ud800": {1}}, "x: the key '\\ud800' holds a lone surrogate"),
    (list[Row], [{"a": 1, "\ud800": 1}], "x[0]: the key '\\ud800' holds a lone surrogate"),
    (dict[Path, int], {Path("\udcff"): 1}, "x: the key PosixPath('\\udcff') holds a lone"),
    (Part, Part(tags=set(), more={"a": {1}}), "x.more.a: set is not JSON; annotate it"),
    (Part, Part(tags=set(), more=LOOP), "contains itself"),
    (Part, Part(tags=set(), more=nested(300)), f"nested deeper than {MAX_DEPTH} levels"),
    (list[Keeper], [Keeper(), Keeper(lock=LOCK)], "x[1].lock: lock is not JSON; convert it"),
    (Keeper, Keeper(more=[LOCK]), "x.more[0]: lock is not JSON"),
    (int, LOCK, "x: lock is not JSON; convert it"),
    (list[int], [1, LOCK], "x[1]: lock is not JSON; convert it"),
    (dict[int | str, int], {1: 2, "1": 3}, "x: two keys are written alike"),
    (threading.Thread, threading.Thread(), "x: Thread is not JSON; convert it first: pydantic"),
    (Iterator[int], iter([1]), "x: list_iterator is not JSON; convert it first"),
    ("Unknown", PART, "x: Part is not JSON; its annotation 'Unknown' cannot be resolved"),
]


@pytest.mark.parametrize(("annotation", "value", "message"), REFUSED, ids=lambda given: "")
def test_what_cannot_be_stored_is_refused_by_its_path(
    annotation: Any, value: object, message: str
) -> None:
    with pytest.raises(TypeError, match=re.escape(message)) as caught:
        codec_for(annotation).encode(value, "x")
    assert str(caught.value).startswith("x")
    str(caught.value).encode()


def test_a_model_that_contains_itself_is_refused() -> None:
    tree = Tree()
    tree.kids.append(tree)
    with pytest.raises(TypeError, match=r"^x: Tree is not JSON \(Circular reference"):
        codec_for(Tree).encode(tree, "x")


def test_json_as_deep_as_allowed_comes_back_whole() -> None:
    deep = nested(MAX_DEPTH - 1)
    exactly(Any, deep)
    exactly(dict[str, Any], {"a": nested(MAX_DEPTH - 1)})


def test_a_refusal_survives_pickle() -> None:
    import pickle

    with pytest.raises(TypeError) as caught:
        PLAIN.encode([LOCK], "result")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert str(again) == str(caught.value)


@pytest.mark.parametrize(
    ("annotation", "value", "told"),
    [
        (list[int], (n for n in [1, 2]), r"result: generator .* can be read only once"),
        (set[int], map(int, "12"), r"result: map .* can be read only once"),
        (list[list[int]], [[1], iter([2])], r"result\[1\]: list_iterator .* only once"),
        (str, b"hi", r"result: bytes is not JSON; .* decode it"),
        (int, {"a": bytearray(b"hi")}, r"result\.a: bytearray is not JSON"),
        (Decimal, Decimal("NaN"), r"result: NaN is not JSON"),
        (list[Decimal], [Decimal("Infinity")], r"result\[0\]: Infinity is not JSON"),
        (dict[tuple[int, int], str], {(1, 2): "a"}, r"result: the key \(1, 2\) .*; use str keys$"),
    ],
    ids=label,
)
def test_what_would_come_back_as_something_else_is_refused(
    annotation: Any, value: object, told: str
) -> None:
    with pytest.raises(TypeError, match=told):
        codec_for(annotation).encode(value, "result")


# A value that is not what its annotation says.


@pytest.mark.parametrize(
    ("annotation", "value", "back"),
    [
        (int, "five", "five"),
        (int, "5", "5"),
        (int, 2.5, 2.5),
        (int, PART, json.loads(codec_for(Part).encode(PART, ""))),
        (str, 5, 5),
        (str, date(2000, 1, 1), "2000-01-01"),
        (datetime, 5, 5),
        (UUID, "no id", "no id"),
        (Color, "green", "green"),
        (list[str], {"b", "a"}, ["a", "b"]),
        (list[int], (1, 2), [1, 2]),
        (tuple[int, ...], [1], (1,)),
        (float, 3, 3.0),
        (Part, {"tags": ["a"], "raw": "", "other": 1}, Part(tags={"a"}, raw=b"")),
        (Part, {"tags": 5}, {"tags": 5}),
        (Part, Part.model_construct(tags="z", raw=b""), {"tags": "z", "raw": "", "more": None}),
        (Point, None, None),
    ],
    ids=label,
)
def test_a_value_of_another_type_comes_back_readable(
    annotation: Any, value: object, back: object
) -> None:
    codec = codec_for(annotation)
    again = codec.decode(codec.encode(value, "x"))
    assert again == back
    assert type(again) is type(back)


@pytest.mark.parametrize("annotation", [Part, Box, int, Row, set[int], Color, float, Any])
@given(plain)
def test_any_recorded_text_is_read(annotation: Any, value: object) -> None:
    codec_for(annotation).decode(json.dumps(value))


@pytest.mark.parametrize(
    "annotation", [inspect.Parameter.empty, Any, object, T, threading.Lock, "Unknown"], ids=label
)
def test_without_a_usable_annotation_json_is_json(annotation: Any) -> None:
    codec = codec_for(annotation)
    assert codec.decode(codec.encode({"a": (1,)}, "x")) == {"a": [1]}


def test_an_annotation_has_one_codec() -> None:
    assert codec_for(list[Part]) is codec_for(list[Part])
    assert codec_for(Any) is PLAIN
    assert codec_for(Annotated[set[str], []]).encode({"b", "a"}, "x") == '["a","b"]'


# Arguments.


def call(fn: Callable[..., object], *args: Any, **kwargs: Any) -> Any:
    text = arguments_codec(fn).encode(args, kwargs)
    assert canonicalize(text) == text
    return json.loads(text)


def test_arguments_are_written_by_name_with_their_defaults() -> None:
    def fn(query: str, limit: int = 10, *, deep: bool = False) -> None: ...

    expected = {"query": "x", "limit": 10, "deep": False}
    assert call(fn, "x") == call(fn, query="x") == call(fn, "x", limit=10) == expected
    assert arguments_codec(fn).encode(("x", 3), {"deep": True}) == (
        '{"deep":true,"limit":3,"query":"x"}'
    )


def test_more_arguments_are_a_list_and_an_object_of_their_own() -> None:
    def fn(first: int, /, *items: set[int], **days: date) -> None: ...

    assert call(fn, 1) == {"first": 1, "items": [], "days": {}}
    assert call(fn, 1, {2, 1}, {3}, first=date(2020, 1, 1)) == {
        "first": 1,
        "items": [[1, 2], [3]],
        "days": {"first": "2020-01-01"},
    }


def test_a_receiver_is_left_out() -> None:
    class Shop:
        def sell(self, item: Part, count: int = 1) -> None: ...

    codec = arguments_codec(Shop.sell, bound_receiver=True)
    assert json.loads(codec.encode((Shop(), PART), {}))["count"] == 1
    assert "self" not in codec.encode((Shop(),), {"item": PART})
    assert call(Shop().sell, PART)["count"] == 1
    with pytest.raises(TypeError, match="missing a required argument: 'self'"):
        codec.encode((), {"item": PART})


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1, 2, 3, 4), {}), ((1,), {"a": 2}), ((1,), {"z": 2}), ((), {"z": 2, "b": 1})],
)
def test_a_wrong_call_fails_as_python_says(args: tuple[int, ...], kwargs: dict[str, int]) -> None:
    def fn(a: int, b: int = 2, *, c: int = 3) -> None: ...

    with pytest.raises(TypeError) as expected:
        inspect.signature(fn).bind(*args, **kwargs)
    with pytest.raises(TypeError, match=f"^{re.escape(str(expected.value))}$"):
        arguments_codec(fn).encode(args, kwargs)


@given(
    st.lists(st.integers(), max_size=4), st.dictionaries(st.sampled_from("abcdz"), st.integers())
)
def test_a_call_is_bound_as_python_binds_it(args: list[int], kwargs: dict[str, int]) -> None:
    def fn(a: int, b: int, c: int = 3, *, d: int = 4) -> dict[str, int]:
        return {"a": a, "b": b, "c": c, "d": d}

    try:
        expected = fn(*args, **kwargs)
    except TypeError:
        with pytest.raises(TypeError):
            call(fn, *args, **kwargs)
    else:
        assert call(fn, *args, **kwargs) == expected


@pytest.mark.parametrize(
    ("items", "path"),
    [
        ([1, 2, 3, {"lock": LOCK}], "args.items[3].lock: lock is not JSON; annotate"),
        (["a", float("nan")], "args.items[1]: nan is not JSON"),
        (LOCK, "args.items: lock is not JSON; annotate it with its type"),
    ],
    ids=lambda given: "",
)
def test_an_argument_is_refused_by_its_path(items: object, path: str) -> None:
    def fn(items, count: int = 1): ...  # type: ignore[no-untyped-def]

    def variadic(*items) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(TypeError, match="^" + re.escape(path)):
        call(fn, items)
    if isinstance(items, list):
        with pytest.raises(TypeError, match="^" + re.escape(path)):
            call(variadic, *items)


def test_an_annotated_argument_is_refused_by_its_path() -> None:
    def fn(items: list[Keeper], count: int = 1) -> None: ...

    with pytest.raises(TypeError, match=r"^args\.items\[1\]\.lock: lock is not JSON; convert it"):
        call(fn, [Keeper(), Keeper(lock=LOCK)])


def test_an_argument_of_another_type_is_written_by_its_own() -> None:
    def fn(items: list[str], when: str = "", part: Part | None = None) -> None: ...

    assert call(fn, {"b", "a"}, date(2000, 1, 1), {"tags": [1]}) == {
        "items": ["a", "b"],
        "when": "2000-01-01",
        "part": {"tags": [1]},
    }


def test_one_unknown_name_does_not_spoil_the_other_annotations() -> None:
    def fn(tags: set[str], other: Unknown = None) -> set[str]: ...  # type: ignore[name-defined]  # noqa: F821

    assert call(fn, {"b", "a"}) == {"tags": ["a", "b"], "other": None}
    assert return_codec(fn).decode('["a"]') == {"a"}
    with pytest.raises(TypeError, match=r"args\.other: set is not JSON; its annotation 'Unknown'"):
        call(fn, set(), set())


def test_what_can_be_called_has_its_own_annotations() -> None:
    class Seller:
        def __call__(self, tags: set[str]) -> frozenset[int]: ...

    def fn(count: int, tags: set[str]) -> frozenset[int]: ...

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any: ...

    for thing in (Seller(), functools.partial(fn, 1), Seller().__call__):
        assert call(thing, tags={"b", "a"})["tags"] == ["a", "b"]
        assert return_codec(thing).decode("[1]") == frozenset({1})
    assert call(wrapper, 1, {"b", "a"}) == {"count": 1, "tags": ["a", "b"]}


def test_a_callable_without_a_signature_is_refused() -> None:
    with pytest.raises(TypeError, match="no signature that Python can tell; wrap it in a function"):
        arguments_codec(max)


def test_plain_arguments_are_canonical() -> None:
    assert encode_plain_arguments({"b": "<", "a": (1,)}) == '{"a":[1],"b":"\\u003c"}'
    with pytest.raises(TypeError, match=r"^args\.a\[0\]: lock is not JSON"):
        encode_plain_arguments({"a": [LOCK]})
