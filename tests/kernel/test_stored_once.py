"""What is recorded again and again is stored once: results, outputs, states, errors, copies."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.histories import check_file

from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import LeaseKey, Proposal

from .moves import AGENT, attempt, call, perform, start

DAY = 86400.0
LONG_BYTES = 10_000
_LETTERS = random.Random(1)


def text(size: int = LONG_BYTES) -> str:
    """One that no other has anything in common with."""
    return "".join(_LETTERS.choices(string.ascii_letters, k=size))


def table(members: int = 100) -> dict[str, str]:
    """10 kB that are neither an array nor a long string."""
    return {text(10): text(80) for _ in range(members)}


def used_bytes(kernel: Kernel) -> int:
    """What the records take in the file."""

    def work(db: Any) -> int:
        pragmas = ("page_count", "freelist_count", "page_size")
        pages, free, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas)
        return int((pages - free) * size)

    return kernel.core.store().read(work)


def texts_left(kernel: Kernel) -> int:
    count = "SELECT (SELECT count(*) FROM bodies) + (SELECT count(*) FROM cells)"
    return kernel.core.store().read(lambda db: int(db.execute(count).fetchone()[0]))


def sweep(kernel: Kernel, clock: ManualClock) -> int:
    clock.advance(DAY + 1)
    return kernel.core.retention.sweep()


@pytest.mark.parametrize("make", [text, table])
def test_c29_a_result_is_stored_once(kernel: Kernel, make: Any) -> None:
    """100 steps of 10 kB take little more than their megabyte; its events repeat nothing, and the
    same results again take a tenth of that."""
    results = [make() for _ in range(100)]
    sizes = [used_bytes(kernel)]
    for _ in range(2):
        lease = start(kernel)
        for number, result in enumerate(results):
            perform(kernel, lease, call("work", number), result)
        sizes.append(used_bytes(kernel))
        steps = {step.args: step.result for step in kernel.list_steps(lease.execution_id)}
        assert [steps[number] for number in range(100)] == results
    first, second = sizes[1] - sizes[0], sizes[2] - sizes[1]
    assert first < 1.4 * len(json.dumps(results))
    assert second < 0.1 * first


def test_c29_results_that_repeat_a_history_grow_linearly(kernel: Kernel) -> None:
    """A graph whose every node returns all messages so far: the second hundred of results takes
    as much room as the first."""
    lease = start(kernel)
    history: list[Any] = []
    sizes = [used_bytes(kernel)]
    for turn in range(200):
        history.append({"role": "user", "content": text(900)})
        perform(kernel, lease, call("node", turn), {"messages": history, "turn": turn})
        if turn % 100 == 99:
            sizes.append(used_bytes(kernel))
    first, second = sizes[1] - sizes[0], sizes[2] - sizes[1]
    assert second < 1.3 * first
    found = {step.args: step.result for step in kernel.list_steps(lease.execution_id)}
    assert [len(found[turn]["messages"]) for turn in range(200)] == list(range(1, 201))
    assert found[199]["messages"] == history


def test_c29_a_session_that_hands_on_its_history_grows_linearly(kernel: Kernel) -> None:
    """Each execution leaves all messages to the next, which finds them byte for byte."""
    history: list[Any] = []
    sizes = [used_bytes(kernel)]
    for turn in range(60):
        lease = attempt(kernel, kernel.create(AGENT, turn, session="chat").id)
        assert kernel.agent.previous(lease.execution_id) == (history or None)
        history.append({"role": "user", "content": text(900)})
        kernel.agent.complete(lease, json.dumps(turn), json.dumps(history))
        if turn % 30 == 29:
            sizes.append(used_bytes(kernel))
    assert sizes[2] - sizes[1] < 1.3 * (sizes[1] - sizes[0])


def test_a_subagents_output_is_its_parents_result(kernel: Kernel) -> None:
    """10 kB that both have are stored once, and each of them reads them."""
    lease, output = start(kernel), table()
    step = kernel.agent.submit(lease, call()).step_id
    spawned_by = {"execution_id": lease.execution_id, "step_id": step}
    child = attempt(kernel, kernel.create(AGENT, spawned_by=spawned_by).id)
    before = used_bytes(kernel)
    kernel.agent.complete(child, json.dumps(output))
    assert used_bytes(kernel) - before < 1.6 * LONG_BYTES
    assert kernel.get(child.execution_id).output == output
    assert kernel.list_steps(lease.execution_id)[0].result == output
    assert kernel.events(child.execution_id)[-1].payload["output"] == output


def test_an_error_that_returns_with_each_try_is_stored_once(kernel: Kernel) -> None:
    """20 tries that fail with the same 10 kB; the log tells each of them whole."""
    lease = start(kernel)
    error = {"message": "boom", "traceback": text()}
    step = kernel.agent.submit(lease, call()).step_id
    before = used_bytes(kernel)
    for number in range(1, 20):
        kernel.agent.retrying(lease, step, number, json.dumps(error), 0.0)
        kernel.agent.begin_try(lease, step, number + 1)
    kernel.agent.fail_step(lease, step, json.dumps(error))
    assert used_bytes(kernel) - before < 5 * LONG_BYTES
    told = [event for event in kernel.events(lease.execution_id) if "error" in event.payload]
    assert [event.type for event in told] == ["step.retrying"] * 19 + ["step.failed"]
    assert all(event.payload["error"] == error for event in told)
    again = kernel.agent.submit(attempt_again(kernel, lease), call())
    assert (again.decision, again.error) == ("replay", error)


def attempt_again(kernel: Kernel, lease: LeaseKey) -> LeaseKey:
    kernel.agent.release(lease)
    return attempt(kernel, lease.execution_id)


def recorded(kernel: Kernel) -> LeaseKey:
    """An execution of which everything is long, and which has ended."""
    lease = attempt(kernel, kernel.create(AGENT, {"input": text()}).id)
    for n in range(5):
        args = {"messages": [{"content": text(900)} for _ in range(5)], "n": n}
        perform(kernel, lease, Proposal("llm_call", "m", json.dumps(args)), table())
    failed = kernel.agent.submit(lease, call("fails", text())).step_id
    kernel.agent.retrying(lease, failed, 1, json.dumps({"message": text()}), 0.0)
    kernel.agent.begin_try(lease, failed, 2)
    kernel.agent.fail_step(lease, failed, json.dumps({"message": text()}))
    kernel.agent.complete(lease, json.dumps({"output": text()}), json.dumps([text(), text()]))
    return lease


def values(kernel: Kernel, execution_id: str) -> list[Any]:
    steps = kernel.list_steps(execution_id)
    return sorted((step.target, json.dumps([step.args, step.result, step.error])) for step in steps)


def test_a_fork_refers_to_what_it_copies(kernel: Kernel, clock: ManualClock) -> None:
    """Ten forks take little room; one that outlives its source still has all of it, and nothing is
    left once the last has gone."""
    source = recorded(kernel).execution_id
    before, events = used_bytes(kernel), kernel.events(source, limit=1000)
    settled = max(event.event_seq for event in events if event.type == "step.failed")
    forks = [kernel.fork(source, settled).id for _ in range(10)]
    assert used_bytes(kernel) - before < 0.5 * before
    wanted = values(kernel, source)
    assert sweep(kernel, clock) == 1
    for fork in forks:
        assert values(kernel, fork) == wanted
        assert len(kernel.get(fork).input["input"]) == LONG_BYTES
        kernel.agent.complete(attempt(kernel, fork), "1")
    assert sweep(kernel, clock) == 10
    assert texts_left(kernel) == 0


def test_retention_frees_a_text_with_the_last_that_needs_it(
    kernel: Kernel, clock: ManualClock
) -> None:
    """Of two executions with the same result the later one keeps it."""
    result = {"rows": [table(10) for _ in range(10)]}
    leases = [start(kernel) for _ in range(2)]
    for lease in leases:
        perform(kernel, lease, call(), result)
        perform(kernel, lease, call("own"), text())
    kernel.agent.complete(leases[0], json.dumps(result))
    stored = texts_left(kernel)
    assert sweep(kernel, clock) == 1
    assert 0 < texts_left(kernel) < stored
    own, same = sorted(kernel.list_steps(leases[1].execution_id), key=lambda step: step.target)
    assert (same.result, len(own.result)) == (result, LONG_BYTES)
    kernel.cancel(leases[1].execution_id)
    assert sweep(kernel, clock) == 1
    assert texts_left(kernel) == 0


@pytest.fixture
def other(tmp_path: Path, clock: ManualClock) -> Iterator[Kernel]:
    """A kernel on a file of its own."""
    with Kernel(tmp_path / "other.db", clock=clock) as kernel:
        kernel.register_agent(AGENT)
        yield kernel


def test_what_is_stored_once_moves_whole(
    kernel: Kernel, other: Kernel, clock: ManualClock, tmp_path: Path
) -> None:
    """Into another file, which shares it there too, and into a backup."""
    source = recorded(kernel).execution_id
    exported = kernel.export_execution(source)
    kernel.backup(tmp_path / "copy.db")
    other.import_execution(exported)
    with Kernel(tmp_path / "copy.db", clock=clock) as copy:
        for one in (copy, other):
            assert one.export_execution(source) == exported
            assert one.get(source) == kernel.get(source)
            assert one.events(source, limit=1000) == kernel.events(source, limit=1000)
    check_file(tmp_path / "copy.db")
    assert texts_left(other) == texts_left(kernel)
    assert sweep(other, clock) == 1
    assert texts_left(other) == 0
