"""Executions that wait: blocked with their lease retired, and resumed once nothing waits any more
(protocol.md 5.5, 9.7). Functions of a transaction."""

from __future__ import annotations

import json

from ..types import ExecutionStatus, StepStatus
from .moment import Moment
from .store import Connection, kinship, resourcing, tables, waiting, wakes
from .store.rows import ExecutionRow, StepRow

__all__ = ["Entry", "awaits", "block", "queue_dispatch", "resume", "settle_awaited"]

Entry = tuple[str, int | None, str | None]
"""An event: type, step number, detail."""


def awaits(db: Connection, execution: int) -> bool:
    """Whether a step of the execution waits for a person or for a subagent (protocol.md 9.7)."""
    return waiting.awaits_approval(db, execution) or kinship.awaits_subagent(db, execution)


def block(
    db: Connection, execution: int, now: Moment, *, reason: str = "", wake_at: int | None = None
) -> Entry:
    """Nothing of the execution runs until it is resumed: its leases are retired."""
    waiting.set_status(db, execution, ExecutionStatus.BLOCKED, now.wall)
    tables.retire_dispatches(db, execution)
    detail = {"reason": reason, "wake_at": wake_at}
    said = {name: value for name, value in detail.items() if value}
    return "execution.blocked", None, json.dumps(said) if said else None


def resume(db: Connection, execution: int, now: Moment) -> list[Entry]:
    """Something that a blocked execution waited for is settled: it goes on if that was the last.

    One that sleeps besides goes on too, and sleeps out what is left.
    """
    if awaits(db, execution):
        return []
    waiting.set_status(db, execution, ExecutionStatus.RUNNING, now.wall)
    return [("execution.resumed", None, None), queue_dispatch(db, execution, now)]


def settle_awaited(
    db: Connection,
    execution: ExecutionRow,
    step: StepRow,
    now: Moment,
    *,
    result: str | None = None,
    error: str | None = None,
) -> None:
    """Record what a step of an execution waited for; the execution goes on if it was blocked and
    that was the last.

    The attempt that it was blocked under may still have settled the step itself. Then that stands,
    and the execution goes on all the same.
    """
    wakes.forget_step(db, step.n)
    if execution.status.terminal:
        return
    entries: list[Entry] = []
    if step.status is StepStatus.EXECUTING:
        status = StepStatus.SUCCEEDED if error is None else StepStatus.FAILED
        tables.settle_step(db, step.n, status, now.wall, result=result, error=error)
        for key in json.loads(resourcing.changed(db, step.n) or "[]"):
            resourcing.count_up(db, execution.n, key)
        entries.append((f"step.{status}", step.n, None))
    if execution.status is ExecutionStatus.BLOCKED:
        entries += resume(db, execution.n, now)
    if entries:
        tables.append_events(db, execution.n, tables.last_seq(db, execution.n), entries, now.wall)


def queue_dispatch(
    db: Connection, execution: int, now: Moment, *, in_seconds: float = 0.0
) -> Entry:
    """A new dispatch of the execution, due then; those that it had are retired."""
    tables.retire_dispatches(db, execution)
    agent_id, max_attempts = waiting.terms(db, execution)
    dispatch_id = now.new_id()
    due_at, due = now.in_seconds(in_seconds)
    tables.insert_dispatch(db, dispatch_id, execution, agent_id, max_attempts, due_at, due)
    detail = json.dumps({"dispatch_id": dispatch_id, "attempt": 0})
    return "dispatch.queued", None, detail
