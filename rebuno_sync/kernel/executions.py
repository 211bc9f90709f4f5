"""Creating and ending executions (protocol.md 9.1, 9.4). Functions of a transaction."""

from __future__ import annotations

import json

from ..errors import api_error
from ..types import ExecutionStatus, StepStatus
from . import approvals
from .lifecycle import live_execution
from .moment import Moment
from .retention import removed_by_id, removed_by_key
from .store import Connection, calls, queue, tables
from .store.rows import ExecutionRow

__all__ = ["cancel", "create", "end", "expire", "find", "get"]

CLIENT_CANCELLED = "client_cancelled"
DEADLINE_EXCEEDED = "deadline_exceeded"
EXECUTION_CANCELLED = "execution_cancelled"


def get(db: Connection, execution_id: str) -> ExecutionRow:
    row = tables.execution(db, execution_id) or removed_by_id(db, execution_id)
    if row is None:
        raise api_error("not_found", f"not found: execution {execution_id}", 404)
    return row


def find(db: Connection, agent_id: str, key: str) -> ExecutionRow | None:
    """The execution that has or had the key."""
    return tables.execution_by_key(db, agent_id, key) or removed_by_key(db, agent_id, key)


def create(
    db: Connection,
    *,
    agent_id: str,
    input_json: str,
    key: str | None,
    execution_id: str,
    dispatch_id: str,
    max_attempts: int,
    deadline_seconds: float | None,
    now: Moment,
) -> ExecutionRow:
    """A new execution with its first dispatch, or the one that has ``key`` already."""
    if tables.agent_lease_seconds(db, agent_id) is None:
        raise api_error("not_found", f"not found: agent {agent_id!r} is not registered", 404)
    if key is not None and (known := find(db, agent_id, key)):
        due = known.deadline_due
        if due is None or due > now.boottime or not live_execution(known.status):
            return known
        expire(db, known.id, now)
        return get(db, known.id)
    deadline = (None, None) if deadline_seconds is None else now.in_seconds(deadline_seconds)
    n = tables.insert_execution(
        db,
        execution_id=execution_id,
        agent_id=agent_id,
        input_json=input_json,
        key=key,
        now=now.wall,
        deadline_at=deadline[0],
        deadline_due=deadline[1],
    )
    timed = None if deadline[0] is None else json.dumps({"deadline_at": deadline[0]})
    tables.insert_dispatch(db, dispatch_id, n, agent_id, max_attempts, now.wall, now.boottime)
    tables.append_events(
        db,
        n,
        0,
        [
            ("execution.created", None, timed),
            ("execution.started", None, timed),
            ("dispatch.queued", None, json.dumps({"dispatch_id": dispatch_id, "attempt": 0})),
        ],
        now.wall,
    )
    return get(db, execution_id)


def end(
    db: Connection,
    n: int,
    status: ExecutionStatus,
    now: Moment,
    *,
    output: str | None = None,
    reason: str = "",
) -> None:
    """The terminal transition: status, event, and every dispatch retired."""
    tables.end_execution(db, n, status, now.wall, output=output, reason=reason)
    tables.append_events(
        db, n, tables.last_seq(db, n), [(f"execution.{status}", None, None)], now.wall
    )
    tables.retire_dispatches(db, n)
    calls.forget(db, n)


def cancel(db: Connection, execution_id: str, reason: str, now: Moment) -> None:
    """End a live execution from outside; its executing steps are cancelled after it."""
    row = get(db, execution_id)
    if not live_execution(row.status):
        raise api_error(
            "conflict", f"conflict: execution {execution_id} is already {row.status}", 409
        )
    queue.leave_notice(db, row.n)
    end(db, row.n, ExecutionStatus.CANCELLED, now, reason=reason)
    error = json.dumps({"reason": EXECUTION_CANCELLED})
    entries = approvals.close(db, row.n, EXECUTION_CANCELLED, now)
    for step in tables.executing_steps(db, row.n):
        tables.settle_step(db, step.n, StepStatus.CANCELLED, now.wall, error=error)
        entries.append(("step.cancelled", step.n, None))
    if entries:
        tables.append_events(db, row.n, tables.last_seq(db, row.n), entries, now.wall)


def expire(db: Connection, execution_id: str, now: Moment) -> None:
    """End an execution whose deadline has passed."""
    cancel(db, execution_id, DEADLINE_EXCEEDED, now)
