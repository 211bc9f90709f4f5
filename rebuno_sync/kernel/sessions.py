"""Sessions: executions that run one after another, each knowing the one before (protocol.md 9.2).

Functions of a transaction. A session is a name, shared by all agents; at most one execution of it
is running or blocked, and the others wait in the order of their creation. Whatever ends one admits
the next in the same transaction, so none is ever forgotten.
"""

from __future__ import annotations

import json

from ..errors import api_error
from ..types import ExecutionStatus
from . import resources, suspension
from .moment import Moment
from .store import Connection, kinship, tables
from .store.rows import ExecutionRow
from .suspension import Entry

__all__ = ["admit", "check_name", "check_new", "check_parent"]

_LONGEST_BYTES = 256


def check_name(field: str, name: str) -> None:
    """Raise ``validation_error`` for a text that cannot name a session, or be a key."""
    try:
        length = len(name.encode())
    except UnicodeEncodeError:  # A lone surrogate.
        length = 0
    if not name.strip() or "\0" in name or not 0 < length <= _LONGEST_BYTES:
        raise api_error(
            "validation_error",
            f"validation error: {field} must have 1 to {_LONGEST_BYTES} bytes of UTF-8, not all"
            " blank and without NUL",
            400,
        )


def check_new(db: Connection, session: str) -> None:
    if kinship.session_exists(db, session):
        raise api_error(
            "conflict",
            f"conflict: session {session!r} has executions already; leave the parent out to go on"
            " with it, or name another session",
            409,
        )


def check_parent(row: ExecutionRow, agent_id: str) -> None:
    """Only a completed execution of the same agent has a state that another can go on from."""
    if row.agent_id != agent_id:
        raise api_error(
            "conflict",
            f"conflict: parent {row.id} is an execution of {row.agent_id!r}, not {agent_id!r}",
            409,
        )
    if row.status is not ExecutionStatus.COMPLETED:
        raise api_error("conflict", f"conflict: parent {row.id} is {row.status}", 409)


def admit(db: Connection, session: str, now: Moment) -> None:
    """Begin the next execution of the session, unless one has begun and not ended."""
    if kinship.in_session(db, session, "'running', 'blocked'"):
        return
    execution_id = kinship.next_in_session(db, session, now.boottime)
    row = None if execution_id is None else tables.execution(db, execution_id)
    if row is None:
        return
    parent = row.parent
    if parent is None and row.forked_from is None:
        parent = kinship.last_completed(db, session, row.agent_id)
    kinship.begin(db, row.n, parent, now.wall)
    detail = {"deadline_at": row.deadline_at, "session": session, "parent_execution_id": parent}
    said = {name: value for name, value in detail.items() if value is not None}
    seq = tables.last_seq(db, row.n)
    entries: list[Entry] = []
    before = None if parent is None or row.forked_from else tables.execution(db, parent)
    if before is not None and before.session == session:
        entries = resources.inherit(db, row.n, before.n, seq + 1)
    entries.append(("execution.started", None, json.dumps(said)))
    entries.append(suspension.queue_dispatch(db, row.n, now))
    tables.append_events(db, row.n, seq, entries, now.wall)
