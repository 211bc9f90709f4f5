"""Canonical JSON (protocol.md 6.1): one text for each value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebuno_sync.canonical import canonical_dumps, canonicalize
from rebuno_sync.strict import MAX_DEPTH

text = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text
finite = scalars.filter(lambda value: value not in (float("inf"), float("-inf")))
values = st.recursive(
    finite, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=20
)


@given(values)
def test_a_value_and_its_json_have_the_same_canonical_text(value: object) -> None:
    assert canonical_dumps(value) == canonicalize(json.dumps(value))


@given(values)
def test_the_text_of_a_value_does_not_depend_on_how_json_escaped_it(value: object) -> None:
    assert canonicalize(json.dumps(value, ensure_ascii=False)) == canonicalize(json.dumps(value))
    assert canonicalize(json.dumps(value, ensure_ascii=False).encode()) == canonical_dumps(value)


@given(values)
def test_canonical_text_is_canonical(value: object) -> None:
    once = canonicalize(json.dumps(value))
    assert canonicalize(once) == once


@given(values)
def test_whitespace_does_not_matter(value: object) -> None:
    assert canonicalize(json.dumps(value, indent=2)) == canonicalize(json.dumps(value))


@given(st.dictionaries(text, finite), st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(value: dict[str, object], random: Any) -> None:
    items = list(value.items())
    random.shuffle(items)
    assert canonicalize(json.dumps(dict(items))) == canonicalize(json.dumps(value))


@given(values)
def test_canonical_text_means_the_same(value: object) -> None:
    assert json.loads(canonicalize(json.dumps(value))) == value


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "null"),
        (b"", "null"),
        (' \t\r\n[ 1 , "a" ] ', '[1,"a"]'),
        ("[1.0,1e2,1E+2,-0,0.10]", "[1.0,1e2,1E+2,-0,0.10]"),
        ('{"a":1} trailing {', '{"a":1}'),
        ('{"a":1}{"b":2}', '{"a":1}'),
        ('{"a":1,"\\u0061":2}', '{"a":2}'),
        ('{"\ufffd":1,"\\ud800":2,"\ufffd":3}', '{"\ufffd":3}'),
        ('{"\ufffd":1,"\\ud800":2}', '{"\ufffd":2}'),
        ('{"\U0001f642":1,"\ue000":2}', '{"\ue000":2,"\U0001f642":1}'),
        ('"\\u007f\\/\\b\\f\\u001f"', '"\x7f/\\b\\f\\u001f"'),
        ('"<\\u2028>&\u2029"', '"\\u003c\\u2028\\u003e\\u0026\\u2029"'),
        ('"\\ud83d\\ude42 \\ude42\\ud83d"', '"\U0001f642 \ufffd\ufffd"'),
        (b'"\xff \xe3\x81 \xf0\x9f\x99"', '"\ufffd \ufffd\ufffd \ufffd\ufffd\ufffd"'),
        (b'{"\xff":1}', '{"\ufffd":1}'),
        ("true", "true"),
        ("false", "false"),
    ],
)
def test_it_is_written_as_the_kernels_in_go_write_it(given: str | bytes, expected: str) -> None:
    assert canonicalize(given) == expected


@pytest.mark.parametrize(
    "broken",
    [
        *("NaN", "[Infinity]", "-Infinity", "nul", "'a'", "1.", "1e", "\ufeff1", '"\n"', " "),
        *("{", "[1,]", "{1:2}", '{"a" 1}', b"\xff", b"\xff1"),
    ],
)
def test_what_is_not_json_is_refused_in_words(broken: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"^invalid JSON: "):
        canonicalize(broken)


def nested(levels: int) -> Any:
    value: list[object] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_containers_may_nest_to_the_documented_depth() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert canonicalize(text) == text
    assert canonical_dumps(nested(MAX_DEPTH)) == text


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 990, 100_000])
def test_deeper_nesting_is_refused_by_its_limit(levels: int) -> None:
    with pytest.raises(ValueError, match=f"nested deeper than {MAX_DEPTH} levels"):
        canonicalize("[" * levels + "]" * levels)
    with pytest.raises(TypeError, match=f"nested deeper than {MAX_DEPTH} levels"):
        canonical_dumps(nested(levels))


def from_a_stack_of(frames: int, call: Callable[[], object]) -> object:
    return call() if not frames else from_a_stack_of(frames - 1, call)


def test_the_depth_holds_from_a_deep_stack() -> None:
    """Three hundred frames are what a web framework or a queue may use up before a handler."""
    deep = [Level.LOW, nested(MAX_DEPTH - 1)]
    assert from_a_stack_of(300, lambda: canonical_dumps(deep)) == canonical_dumps(deep)
    source = json.dumps(deep)
    assert from_a_stack_of(300, lambda: canonicalize(source)) == canonical_dumps(deep)


class Level(IntEnum):
    LOW = 1


class Word(StrEnum):
    HELLO = "hello"


class Tag(str):
    __slots__ = ()

    def __hash__(self) -> int:
        return 7


def test_subclasses_are_written_as_what_they_extend() -> None:
    assert canonical_dumps({Word.HELLO: (Level.LOW, Word.HELLO)}) == '{"hello":[1,"hello"]}'


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "value: nan is not JSON; use None or a text for it"),
        ([1, {"a b": float("-inf")}], "value[1]['a b']: -inf is not JSON; use None"),
        ({"a": {1: 2}}, "value.a: the key 1 is not a str; annotate dict[int, ...] or use str keys"),
        ({None: 2}, "value: the key None is not a str"),
        ({"a": [{1, 2}]}, "value.a[0]: set is not JSON; annotate it with its type"),
        ({"a": b"x"}, "value.a: bytes is not JSON; annotate it with its type"),
        (["\ud800"], "value[0]: the text holds a lone surrogate; replace it"),
        ({"\ud800": 1}, "value: the key '\\ud800' holds a lone surrogate; replace it"),
        ({Tag("a"): 1, "a": 2}, "value: two keys are both written 'a'"),
        (10**5000, "value: an int of more than 4,300 digits; write it as text"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_what_is_not_strict_json_is_refused_by_its_path(value: object, message: str) -> None:
    with pytest.raises(TypeError, match="^" + re.escape(message)):
        canonical_dumps(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: dict[str, object] = {}
    loop["again"] = [loop]
    with pytest.raises(TypeError, match=r"value.again\[0\]: contains itself"):
        canonical_dumps(loop)


def test_a_value_that_occurs_twice_is_written_twice() -> None:
    shared = [1]
    assert canonical_dumps({"b": shared, "a": shared}) == '{"a":[1],"b":[1]}'
