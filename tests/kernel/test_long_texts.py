"""Long inputs and arguments are stored once where they repeat, and come back byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel.store import Connection, texts
from rebuno_sync.kernel.store.splitting import cuts_of
from rebuno_sync.types import Proposal

from .moves import AGENT, perform, start


def stored_bytes(kernel: Kernel) -> int:
    """What steps and their texts take."""
    sql = "SELECT coalesce(sum(length(args)), 0) FROM steps"
    more = "SELECT coalesce(sum(length(text)), 0) FROM bodies"
    cells = "SELECT 24 * count(*) FROM cells"
    return kernel.core.store().read(
        lambda db: sum(int(db.execute(one).fetchone()[0]) for one in (sql, more, cells))
    )


def message(turn: int, size: int = 900) -> dict[str, str]:
    return {"role": "user", "content": f"turn {turn} " + chr(97 + turn % 26) * size}


@pytest.mark.parametrize("size", [900, 150])
@pytest.mark.parametrize("field", ["messages", "contents"])
def test_c29_a_chat_that_repeats_its_history_grows_linearly(
    kernel: Kernel, field: str, size: int
) -> None:
    """200 turns: the second hundred takes as much room as the first, and the requests read back
    as they were sent."""
    lease = start(kernel)
    tools = [{"name": f"tool {n}", "description": "d" * 700} for n in range(5)]
    history: list[Any] = []
    sizes = []
    for turn in range(200):
        history.append(message(turn, size))
        request = {"model": "m", field: history, "tools": tools}
        perform(kernel, lease, Proposal("llm_call", "m", json.dumps(request)), turn)
        if turn % 100 == 99:
            sizes.append(stored_bytes(kernel))
    assert sizes[1] < 2.2 * sizes[0]
    assert sizes[1] < 4 * len(json.dumps(history))
    args = [step.args for step in kernel.list_steps(lease.execution_id)]
    assert sorted(len(one[field]) for one in args) == list(range(1, 201))
    assert all(one[field] == history[: len(one[field])] for one in args)


def test_a_window_that_moves_over_a_history_repeats_nothing(kernel: Kernel) -> None:
    """The oldest message goes with each turn."""
    lease = start(kernel)
    history = [message(turn) for turn in range(60)]
    for turn in range(20, 60):
        request = {"messages": history[turn - 20 : turn]}
        perform(kernel, lease, Proposal("llm_call", "m", json.dumps(request)))
    assert stored_bytes(kernel) < 2 * len(json.dumps(history))


def test_an_input_that_is_created_twice(kernel: Kernel) -> None:
    """Its long parts are stored once; each execution has all of it."""
    history = {"history": [message(turn) for turn in range(10)], "text": "t" * 5000}
    first, second = kernel.create(AGENT, history), kernel.create(AGENT, history)
    assert kernel.get(first.id).input == kernel.get(second.id).input == history
    assert [one.input for one in kernel.list().executions] == [history, history]
    assert stored_bytes(kernel) < 1.1 * len(json.dumps(history))


def in_transaction(kernel: Kernel, work: Callable[[Connection], Any]) -> Any:
    return kernel.core.store().write(work, durable=False)


def left(kernel: Kernel) -> tuple[int, int]:
    count = "SELECT (SELECT count(*) FROM bodies), (SELECT count(*) FROM cells)"
    return kernel.core.store().read(lambda db: db.execute(count).fetchone())


PARTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3).map(lambda t: t * 400)
VALUES = st.recursive(
    st.one_of(PARTS, st.integers(), st.none(), st.floats(allow_nan=False)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=6), st.dictionaries(st.text(max_size=2), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Kernel(tmp_path_factory.mktemp("texts") / "kernel.db") as kernel:
        yield kernel


@settings(max_examples=100, deadline=None)
@given(values=st.lists(VALUES, min_size=1, max_size=4), indent=st.sampled_from([None, 1]))
def test_any_text_comes_back_byte_for_byte_and_leaves_nothing(
    shared: Kernel, values: list[Any], indent: int | None
) -> None:
    """However it is nested and spaced; once the last that needs a part goes, so does the part."""
    written = [json.dumps(value, indent=indent, ensure_ascii=bool(indent)) for value in values]
    written.append(json.dumps(values, indent=indent))
    packed = in_transaction(shared, lambda db: [texts.pack(db, text) for text in written])
    read = shared.core.store().read(lambda db: [texts.unpack(db, one) for one in packed])
    assert read == written
    in_transaction(shared, lambda db: [texts.release(db, one) for one in packed])
    assert left(shared) == (0, 0)


@pytest.mark.parametrize("text", ["", "x" * 3000, "[" * 3000, '{"a":' + "[1," * 3000, "[1" * 2000])
def test_what_is_no_json_is_kept_as_it_is(text: str) -> None:
    """Nobody else minds either."""
    assert cuts_of(text) == []


def test_many_small_members_make_few_parts() -> None:
    """A hundred thousand numbers are some hundreds of parts."""
    [cut] = cuts_of(json.dumps(list(range(100_000))))
    assert len(cut.parts) < 1400


def test_a_policy_is_tried_on_long_arguments(kernel: Kernel) -> None:
    """Of past calls, as they were made."""
    lease = start(kernel)
    args = {"messages": [message(n) for n in range(5)], "limit": 7}
    perform(kernel, lease, Proposal("llm_call", "m", json.dumps(args)))
    rule = (
        "{id: seven, when: {target: m, arguments: {limit: {equals: 7}}}, then: {decision: allow}}"
    )
    report = kernel.test_policy(AGENT, f"rules: [{rule}]", execution_id=lease.execution_id)
    (result,) = report.results
    assert (result.rule_id, result.passed, result.args) == ("seven", True, args)
