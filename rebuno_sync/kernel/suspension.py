"""Executions that wait: blocked with their lease retired, and resumed once nothing waits any more
(protocol.md 5.5, 9.7). Functions of a transaction."""

from __future__ import annotations

import json

from ..types import ExecutionStatus
from .moment import Moment
from .store import Connection, tables, waiting

__all__ = ["Entry", "block", "queue_dispatch", "resume"]

Entry = tuple[str, int | None, str | None]
"""An event: type, step number, detail."""


def block(db: Connection, execution: int, now: Moment) -> Entry:
    """Nothing of the execution runs until it is resumed: its leases are retired."""
    waiting.set_status(db, execution, ExecutionStatus.BLOCKED, now.wall)
    tables.retire_dispatches(db, execution)
    return "execution.blocked", None, None


def resume(db: Connection, execution: int, now: Moment) -> list[Entry]:
    """Something that a blocked execution waited for is settled: it goes on if that was the last.

    Subagents belong here as well: an executing step that a child execution stands for is waited
    for like an approval.
    """
    if waiting.awaits_approval(db, execution):
        return []
    waiting.set_status(db, execution, ExecutionStatus.RUNNING, now.wall)
    return [("execution.resumed", None, None), queue_dispatch(db, execution, now)]


def queue_dispatch(
    db: Connection, execution: int, now: Moment, *, in_seconds: float = 0.0
) -> Entry:
    """A new dispatch of the execution, due then; those that it had are retired."""
    tables.retire_dispatches(db, execution)
    agent_id, max_attempts = waiting.last_dispatch(db, execution)
    dispatch_id = now.new_id()
    due_at, due = now.in_seconds(in_seconds)
    tables.insert_dispatch(db, dispatch_id, execution, agent_id, max_attempts, due_at, due)
    detail = json.dumps({"dispatch_id": dispatch_id, "attempt": 0})
    return "dispatch.queued", None, detail
