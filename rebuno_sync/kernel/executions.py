"""Creating and ending executions (protocol.md 9.1, 9.4). Functions of a transaction."""

from __future__ import annotations

import json
from typing import NamedTuple

from ..errors import api_error
from ..types import ExecutionStatus, StepStatus
from . import approvals, resources, sessions, subagents
from .lifecycle import live_execution
from .moment import Moment
from .retention import removed_by_id, removed_by_key
from .store import Connection, calls, kinship, queue, tables, wakes
from .store.rows import ExecutionRow, RemovedRow
from .subagents import Spawner
from .suspension import Entry

__all__ = [
    "Wanted",
    "cancel",
    "create",
    "detail_of",
    "end",
    "expire",
    "find",
    "get",
    "kept",
    "left_behind",
]

CLIENT_CANCELLED = "client_cancelled"
DEADLINE_EXCEEDED = "deadline_exceeded"
EXECUTION_CANCELLED = "execution_cancelled"


def get(db: Connection, execution_id: str) -> ExecutionRow:
    if not isinstance(execution_id, str):
        raise TypeError(f"an execution's id is a text, not {execution_id!r:.80}; give execution.id")
    row = tables.execution(db, execution_id) or removed_by_id(db, execution_id)
    if row is None:
        raise api_error("not_found", f"not found: execution {execution_id}", 404)
    return row


def kept(db: Connection, execution_id: str) -> ExecutionRow:
    """One that is here with all that it did."""
    row = get(db, execution_id)
    if isinstance(row, RemovedRow):
        raise api_error(
            "not_found",
            f"not found: execution {execution_id} was removed some time after its end",
            404,
        )
    return row


def find(db: Connection, agent_id: str, key: str) -> ExecutionRow | None:
    """The execution that has or had the key."""
    return tables.execution_by_key(db, agent_id, key) or removed_by_key(db, agent_id, key)


class Wanted(NamedTuple):
    """What is to be created (protocol.md 2.1.1)."""

    agent_id: str
    input_json: str
    key: str | None = None
    session: str | None = None
    parent: str | None = None
    """The id of the execution whose state it goes on from."""
    spawner: Spawner | None = None
    on_behalf_of: str | None = None


class Terms(NamedTuple):
    """What holds for every execution that a kernel creates."""

    max_attempts: int
    deadline_seconds: float | None

    def deadline(self, now: Moment) -> tuple[int, float] | tuple[None, None]:
        """When one that is created now ends: on the wall clock, and on the boot-time clock."""
        if self.deadline_seconds is None:
            return None, None
        return now.in_seconds(self.deadline_seconds)


def create(
    db: Connection,
    wanted: Wanted,
    terms: Terms,
    *,
    execution_id: str,
    dispatch_id: str,
    now: Moment,
) -> ExecutionRow:
    """A new execution with its first dispatch, or the one that has its key already.

    One of a session has no dispatch before the session admits it.
    """
    agent_id, key, session = wanted.agent_id, wanted.key, wanted.session
    if tables.agent_lease_seconds(db, agent_id) is None:
        raise api_error("not_found", f"not found: agent {agent_id!r} is not registered", 404)
    if key is not None and (known := find(db, agent_id, key)):
        due = known.deadline_due
        if due is None or due > now.boottime or not live_execution(known.status):
            return known
        expire(db, known.id, now)
        return get(db, known.id)
    _check_relatives(db, wanted)
    deadline_at, deadline_due = terms.deadline(now)
    row = ExecutionRow(
        n=0,
        id=execution_id,
        agent_id=agent_id,
        status=ExecutionStatus.RUNNING if session is None else ExecutionStatus.PENDING,
        input=wanted.input_json,
        output=None,
        failure_reason="",
        idempotency_key=key,
        created_at=now.wall,
        updated_at=now.wall,
        deadline_at=deadline_at,
        deadline_due=deadline_due,
        max_attempts=terms.max_attempts,
        session=session,
        parent=wanted.parent,
        spawner=None if wanted.spawner is None else wanted.spawner[0],
        spawner_step=None if wanted.spawner is None else wanted.spawner[1],
        on_behalf_of=wanted.on_behalf_of,
    )
    n = tables.insert_execution(db, row[1:])
    entries: list[Entry] = [("execution.created", None, detail_of(row, "session", "spawned_by"))]
    if session is None:
        tables.insert_dispatch(
            db, dispatch_id, n, agent_id, row.max_attempts, now.wall, now.boottime
        )
        queued = json.dumps({"dispatch_id": dispatch_id, "attempt": 0})
        entries.append(("execution.started", None, detail_of(row, "parent_execution_id")))
        entries.append(("dispatch.queued", None, queued))
    tables.append_events(db, n, 0, entries, now.wall)
    if session is not None:
        sessions.admit(db, session, now)
    return get(db, execution_id)


def _check_relatives(db: Connection, wanted: Wanted) -> None:
    if wanted.parent is not None:
        sessions.check_parent(kept(db, wanted.parent), wanted.agent_id)
        if wanted.session is not None:
            sessions.check_new(db, wanted.session)
    if wanted.spawner is not None:
        execution_id, step_id = wanted.spawner
        subagents.check_spawner(db, get(db, execution_id), step_id, wanted.session)


def detail_of(row: ExecutionRow, *names: str) -> str | None:
    """What an event says of an execution's beginning besides its status."""
    spawned_by = {"execution_id": row.spawner, "step_id": row.spawner_step}
    told = {
        "session": row.session,
        "parent_execution_id": row.parent,
        "spawned_by": None if row.spawner is None else spawned_by,
    }
    detail = {"deadline_at": row.deadline_at, **{name: told[name] for name in names}}
    said = {name: value for name, value in detail.items() if value is not None}
    return json.dumps(said) if said else None


def end(
    db: Connection,
    n: int,
    status: ExecutionStatus,
    now: Moment,
    *,
    output: str | None = None,
    reason: str = "",
    state: str | None = None,
) -> None:
    """The terminal transition, with all that follows from it elsewhere: its subagents end, the
    step that it stands for is settled, and its session goes on."""
    ended = _end(db, n, status, now, output=output, reason=reason, state=state)
    for descendant in kinship.live_descendants(db, ended.id):
        _cancel(db, get(db, descendant), subagents.PARENT_TERMINAL, now)
    _follow_up(db, ended, now)


def cancel(db: Connection, execution_id: str, reason: str, now: Moment) -> None:
    """End a live execution from outside; its executing steps are cancelled after it."""
    row = get(db, execution_id)
    if not live_execution(row.status):
        raise api_error(
            "conflict", f"conflict: execution {execution_id} is already {row.status}", 409
        )
    # Those above come first: what is cancelled with its parent has nobody to settle a step for.
    _cancel(db, row, reason, now, follows=False)
    for descendant in kinship.live_descendants(db, execution_id):
        _cancel(db, get(db, descendant), subagents.PARENT_TERMINAL, now)
    _follow_up(db, get(db, execution_id), now)


def expire(db: Connection, execution_id: str, now: Moment) -> None:
    """End an execution whose deadline has passed, if it lives."""
    if live_execution(get(db, execution_id).status):
        cancel(db, execution_id, DEADLINE_EXCEEDED, now)


def _end(
    db: Connection,
    n: int,
    status: ExecutionStatus,
    now: Moment,
    *,
    output: str | None = None,
    reason: str = "",
    state: str | None = None,
) -> ExecutionRow:
    """Status, event, and every dispatch retired. A state of ``null`` is none."""
    state = None if state == "null" else state
    tables.end_execution(db, n, status, now.wall, output=output, reason=reason, state=state)
    tables.append_events(
        db, n, tables.last_seq(db, n), [(f"execution.{status}", None, None)], now.wall
    )
    tables.retire_dispatches(db, n)
    calls.forget(db, n)
    wakes.forget(db, n)
    return tables.execution_by_number(db, n)


def _cancel(
    db: Connection, row: ExecutionRow, reason: str, now: Moment, *, follows: bool = True
) -> None:
    queue.leave_notice(db, row.n)
    ended = _end(db, row.n, ExecutionStatus.CANCELLED, now, reason=reason)
    error = json.dumps({"reason": EXECUTION_CANCELLED})
    entries = approvals.close(db, row.n, EXECUTION_CANCELLED, now)
    for step in tables.executing_steps(db, row.n):
        tables.settle_step(db, step.n, StepStatus.CANCELLED, now.wall, error=error)
        resources.settled(db, row.n, step.n)
        entries.append(("step.cancelled", step.n, None))
    if entries:
        tables.append_events(db, row.n, tables.last_seq(db, row.n), entries, now.wall)
    if follows:
        _follow_up(db, ended, now)


def _follow_up(db: Connection, ended: ExecutionRow, now: Moment) -> None:
    subagents.settle_parent(db, ended, now)
    if ended.session is not None:
        sessions.admit(db, ended.session, now)


def left_behind(db: Connection, row: ExecutionRow) -> str:
    """What the execution before it left, as JSON (protocol.md 9.3)."""
    return (kinship.left_behind(db, row.parent) if row.parent else None) or "null"
