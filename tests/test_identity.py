"""Which step an effect is (protocol.md 6.2), against the published vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rebuno_sync.canonical import canonicalize
from rebuno_sync.kernel.identity import args_hash, step_id

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "vectors" / "identity.json").read_text("utf-8")
)
words = st.text(st.characters(exclude_categories=["Cs"]))
fields = st.tuples(words, words, words, words, st.integers(min_value=0))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["step_id"][:8])
def test_every_vector_holds(vector: dict[str, Any]) -> None:
    canonical = canonicalize(vector["args_text"])
    assert canonical == vector["canonical"]
    assert canonicalize(vector["args_text"].encode()) == canonical
    assert args_hash(canonical) == vector["args_hash"]
    named = [vector[key] for key in ("execution_id", "kind", "target", "args_hash", "occurrence")]
    assert step_id(*named) == vector["step_id"]


def test_the_vectors_are_there() -> None:
    assert len(VECTORS) >= 50


@given(fields, fields)
def test_other_fields_make_another_step(
    one: tuple[str, str, str, str, int], other: tuple[str, str, str, str, int]
) -> None:
    assume(one != other)
    assert step_id(*one) != step_id(*other)


@given(words, words)
def test_text_that_moves_from_one_field_to_the_next_makes_another_step(a: str, b: str) -> None:
    assume(a and b)
    assert step_id("x", a + b, "", "h", 0) != step_id("x", a, b, "h", 0)
