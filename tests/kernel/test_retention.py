"""What is removed some time after its end, and what stays of it (protocol.md 9.8)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rebuno_sync as rebuno
from rebuno_sync.clock import ManualClock
from rebuno_sync.errors import ConflictError, ExecutionFailed, NotFoundError
from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel.store import graves
from rebuno_sync.types import Capture, Execution, Registration, Wake

from .moves import AGENT, ask_for, attempt, call, once, perform, start

DAY = 86400.0


def rows(kernel: Kernel, table: str) -> int:
    return kernel.core.store().read(
        lambda db: int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    )


def finish(kernel: Kernel, key: str | None = None, output: object = "done") -> Execution:
    """An execution of one step that has completed."""
    execution = kernel.create(AGENT, {"n": 1}, idempotency_key=key)
    lease = attempt(kernel, execution.id)
    perform(kernel, lease, call(args={"long": "x" * 3000}), {"r": 1})
    kernel.agent.complete(lease, json.dumps(output))
    return kernel.get(execution.id)


def sweep(kernel: Kernel) -> int:
    return kernel.core.retention.sweep()


# -- what goes


def test_nothing_is_left_of_an_old_execution(kernel: Kernel, clock: ManualClock) -> None:
    """Its steps, events, dispatches and texts go with it."""
    execution = finish(kernel)
    clock.advance(DAY + 1)
    assert sweep(kernel) == 1
    with pytest.raises(NotFoundError):
        kernel.get(execution.id)
    tables = ("executions", "steps", "events", "dispatches", "bodies", "cells", "tombstones")
    assert [rows(kernel, table) for table in tables] == [0] * len(tables)


def test_approvals_go_with_their_execution(kernel: Kernel, clock: ManualClock) -> None:
    """One that was granted, and one that was never decided."""
    ask_for(kernel, "charge")
    granted, undecided = start(kernel), start(kernel)
    for lease in (granted, undecided):
        kernel.agent.submit(lease, once())
    kernel.grant_approval(kernel.list_approvals()[0].id)
    again = attempt(kernel, granted.execution_id)
    perform(kernel, again, once())
    kernel.agent.complete(again, "1")
    kernel.cancel(undecided.execution_id)
    assert rows(kernel, "approvals") == 2
    clock.advance(DAY + 1)
    assert sweep(kernel) == 2
    assert rows(kernel, "approvals") == 0


def test_buckets_that_nobody_asks_for_go(kernel: Kernel, clock: ManualClock) -> None:
    """A rate limit that was asked within the time is kept, as executions are (protocol.md 9.8)."""
    limit = "{max_calls: 5, window: 1m, per_what: agent}"
    rules = [
        f"{{id: {target}, when: {{target: {target}}},"
        f" then: {{decision: allow, rate_limit: {limit}}}}}"
        for target in ("idle", "used")
    ]
    kernel.set_policy(AGENT, f"rules: [{', '.join(rules)}]")
    lease = start(kernel)
    perform(kernel, lease, call("idle"))
    clock.advance(DAY)
    kernel.agent.release(lease)
    perform(kernel, attempt(kernel, lease.execution_id), call("used"))
    assert (sweep(kernel), rows(kernel, "rate_buckets")) == (0, 2)
    clock.advance(1)
    assert (sweep(kernel), rows(kernel, "rate_buckets")) == (0, 1)


def test_c40_age_counts_from_the_end(kernel: Kernel, clock: ManualClock) -> None:
    """One that ran for two days is kept for a day after; one that still runs is kept whatever its
    age."""
    long_lease, running = start(kernel), start(kernel)
    clock.advance(2 * DAY)
    kernel.agent.release(long_lease)
    kernel.agent.complete(attempt(kernel, long_lease.execution_id), "1")
    assert sweep(kernel) == 0
    clock.advance(DAY)
    assert sweep(kernel) == 0
    clock.advance(1)
    assert sweep(kernel) == 1
    assert [left.id for left in kernel.list().executions] == [running.execution_id]


def test_old_executions_go_in_small_batches(kernel: Kernel, clock: ManualClock) -> None:
    """No transaction removes many; whoever starts one passes by and takes a batch along."""
    for _ in range(45):
        finish(kernel)
    clock.advance(DAY + 1)
    left = []
    for _ in range(4):
        kernel.start(AGENT)
        left.append(rows(kernel, "executions"))
    assert left == [26, 7, 3, 4]


def test_whoever_creates_an_execution_removes_old_ones(kernel: Kernel, clock: ManualClock) -> None:
    finish(kernel)
    clock.advance(DAY + 1)
    new = kernel.create(AGENT)
    assert [left.id for left in kernel.list().executions] == [new.id]


def test_a_short_time_is_looked_at_more_often(path: Path, clock: ManualClock) -> None:
    """Every minute, or twice in the time for which an execution is kept."""
    with Kernel(path, retention=2.0, clock=clock) as kernel:
        kernel.register_agent(AGENT)
        finish(kernel)
        clock.advance(2.5)
        new = kernel.create(AGENT)
        assert [left.id for left in kernel.list().executions] == [new.id]


def test_the_dispatcher_removes_old_executions(kernel: Kernel, clock: ManualClock) -> None:
    finish(kernel)
    clock.advance(DAY + 1)
    kernel.dispatcher().dispatch_once()
    assert kernel.list().executions == []


def test_without_a_limit_all_are_kept(path: Path, clock: ManualClock) -> None:
    with Kernel(path, retention=None, clock=clock) as kernel:
        kernel.register_agent(AGENT)
        finish(kernel)
        clock.advance(1000 * DAY)
        assert sweep(kernel) == 0
        kernel.start(AGENT)
        assert len(kernel.list().executions) == 2


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_limit_is_positive(path: Path, seconds: float) -> None:
    with pytest.raises(ValueError, match=r"retention must be positive.*None keeps all"):
        Kernel(path, retention=seconds)


# -- what stays of one that had a key


def test_c40_a_key_finds_its_old_outcome(kernel: Kernel, clock: ManualClock) -> None:
    """Created, found or asked for by its id: the outcome, and nothing runs."""
    execution = finish(kernel, "k", {"answer": 42})
    clock.advance(DAY + 1)
    assert sweep(kernel) == 1
    again = kernel.create(AGENT, {"other": "input"}, idempotency_key="k")
    assert (again.id, again.status, again.output) == (execution.id, "completed", {"answer": 42})
    assert (again.created_at, again.updated_at) == (execution.created_at, execution.updated_at)
    assert kernel.find(AGENT, "k") == again == kernel.get(execution.id)
    assert kernel.wait(execution.id).output == {"answer": 42}
    assert kernel.events(execution.id) == kernel.list_steps(execution.id) == []
    assert kernel.claim(execution.id) is None
    with pytest.raises(ConflictError, match="already completed"):
        kernel.cancel(execution.id)
    assert rows(kernel, "executions") == 0


def test_c40_a_failure_and_a_cancel_are_kept(kernel: Kernel, clock: ManualClock) -> None:
    """With the reason, as far as it fits."""
    failed = attempt(kernel, kernel.create(AGENT, idempotency_key="f").id)
    kernel.agent.fail(failed, "\u00e9" * 2000)
    kernel.cancel(kernel.create(AGENT, idempotency_key="c").id)
    clock.advance(DAY + 1)
    sweep(kernel)
    found = kernel.get(failed.execution_id)
    assert (found.status, found.failure_reason) == ("failed", "\u00e9" * 512)
    cancelled = kernel.find(AGENT, "c")
    assert cancelled is not None
    assert (cancelled.status, cancelled.failure_reason) == ("cancelled", "client_cancelled")


def test_c40_a_large_output_is_not_kept_and_says_so(kernel: Kernel, clock: ManualClock) -> None:
    """Every question for it names the execution and the size; none runs it again."""
    execution = finish(kernel, "k", "x" * 1023)
    clock.advance(DAY + 1)
    sweep(kernel)
    for ask in (
        lambda: kernel.create(AGENT, idempotency_key="k"),
        lambda: kernel.find(AGENT, "k"),
        lambda: kernel.get(execution.id),
    ):
        with pytest.raises(ConflictError, match=rf"{execution.id} .* output of 1025 bytes"):
            ask()


def times(n: int) -> str:
    calls.append(n)
    return "x" * n


calls: list[int] = []


def test_c40_run_with_a_key_of_a_removed_execution(path: Path, clock: ManualClock) -> None:
    """The old result; another input is a conflict as ever; a result that was too large is an error
    that says so. The handler does not run."""
    with Kernel(path, clock=clock) as kernel:
        for n in (5, 2000):
            rebuno.run(times, {"n": n}, key=f"k{n}", kernel=kernel)
        calls.clear()
        clock.advance(DAY + 1)
        assert kernel.core.retention.sweep() == 2
        assert rebuno.run(times, {"n": 5}, key="k5", kernel=kernel) == "xxxxx"
        with pytest.raises(ConflictError, match="another input"):
            rebuno.run(times, {"n": 6}, key="k5", kernel=kernel)
        with pytest.raises(ConflictError, match="too large to keep"):
            rebuno.run(times, {"n": 2000}, key="k2000", kernel=kernel)
        assert calls == []


# -- executions that belong together


def completed_of(kernel: Kernel, session: str) -> Execution:
    """The session's next execution, completed."""
    execution = kernel.create(AGENT, session=session)
    kernel.agent.complete(attempt(kernel, execution.id), '"left"')
    return execution


def test_a_session_goes_as_a_whole(kernel: Kernel, clock: ManualClock) -> None:
    """While one of its executions lives or is young, those before it stay (protocol.md 9.8)."""
    completed_of(kernel, "s")
    clock.advance(DAY + 1)
    lease = attempt(kernel, kernel.create(AGENT, session="s").id)
    clock.advance(DAY + 1)
    assert sweep(kernel) == 0
    kernel.agent.release(lease)
    again = attempt(kernel, lease.execution_id)
    assert kernel.agent.previous(lease.execution_id) == "left"
    kernel.agent.complete(again, "1")
    assert sweep(kernel) == 0
    clock.advance(DAY + 1)
    assert sweep(kernel) == 2


def test_a_parent_stays_while_its_state_may_be_asked_for(
    kernel: Kernel, clock: ManualClock
) -> None:
    """Once the execution that goes on from it has ended, it goes, and nothing names it."""
    parent = finish(kernel, output="left")
    child = kernel.create(AGENT, parent_execution_id=parent.id)
    clock.advance(DAY + 1)
    assert sweep(kernel) == 0
    lease = attempt(kernel, child.id)
    assert kernel.agent.previous(child.id) == "left"
    kernel.agent.complete(lease, "1")
    assert sweep(kernel) == 1
    assert kernel.get(child.id).parent_execution_id is None
    with pytest.raises(NotFoundError):
        kernel.get(parent.id)


def test_a_fork_outlives_its_source(kernel: Kernel, clock: ManualClock) -> None:
    """And does not name it any more; its log still tells of it."""
    source = finish(kernel)
    fork = kernel.fork(source.id, len(kernel.events(source.id)))
    clock.advance(DAY + 1)
    assert sweep(kernel) == 1
    left = kernel.get(fork.id)
    assert (left.forked_from, left.fork_seq) == (None, 0)
    (forked,) = [it for it in kernel.events(fork.id) if it.type == "execution.forked"]
    assert forked.payload["source_execution_id"] == source.id
    assert len(kernel.list_steps(fork.id)) == 1


def test_a_subagent_goes_with_its_parent(kernel: Kernel, clock: ManualClock) -> None:
    """Which ended it, so that both are as old."""
    lease = start(kernel)
    step = kernel.agent.submit(lease, call()).step_id
    spawned_by = {"execution_id": lease.execution_id, "step_id": step}
    child = kernel.create(AGENT, spawned_by=spawned_by)
    assert kernel.get(child.id).spawned_by == spawned_by
    kernel.agent.complete(lease, "1")
    clock.advance(DAY + 1)
    assert sweep(kernel) == 2
    assert rows(kernel, "executions") == 0


def test_nothing_is_left_of_sleeps_and_resources(kernel: Kernel, clock: ManualClock) -> None:
    """Every table with rows of an execution is emptied of them."""
    lease = start(kernel)
    view = kernel.agent.resources.register(lease, Registration("repo", "git", "{}", every_steps=1))
    kernel.agent.resources.keep(lease, [Capture("repo", view.generation, "ref")], [])
    sleep = kernel.agent.submit(lease, call("sleep"))
    assert kernel.agent.suspend(lease, Wake(sleep.step_id, 60))
    assert [rows(kernel, table) for table in ("resources", "checkpoints", "wakes")] == [1, 1, 1]
    kernel.cancel(lease.execution_id)
    clock.advance(DAY + 1)
    assert sweep(kernel) == 1
    left = kernel.core.store().read(
        lambda db: [table for table in graves.tables_of_executions(db) if rows(kernel, table)]
    )
    assert left == []


def test_c40_what_was_removed_is_no_parent_and_no_source(
    kernel: Kernel, clock: ManualClock
) -> None:
    """Its outcome is kept for its key, what it did is not; the error says so."""
    gone = finish(kernel, "k")
    clock.advance(DAY + 1)
    assert sweep(kernel) == 1
    for ask in (
        lambda: kernel.create(AGENT, parent_execution_id=gone.id),
        lambda: kernel.fork(gone.id, 1),
        lambda: kernel.fork_points(gone.id),
        lambda: kernel.export_execution(gone.id),
    ):
        with pytest.raises(NotFoundError, match="was removed some time after its end"):
            ask()


def fails(n: int) -> str:
    raise RuntimeError(f"no {n}")


def test_c40_what_failed_and_was_removed_is_not_retried(path: Path, clock: ManualClock) -> None:
    """Asking to retry it says so, and why it failed; without that, its old failure is raised."""
    with Kernel(path, clock=clock) as kernel:
        with pytest.raises(ExecutionFailed):
            rebuno.run(fails, {"n": 1}, key="k", kernel=kernel)
        clock.advance(DAY + 1)
        assert kernel.core.retention.sweep() == 1
        with pytest.raises(ConflictError, match=r"no 1.* cannot be retried; use another key"):
            rebuno.run(fails, {"n": 1}, key="k", kernel=kernel, retry_failed=True)
        with pytest.raises(ExecutionFailed, match="no 1"):
            rebuno.run(fails, {"n": 1}, key="k", kernel=kernel)
