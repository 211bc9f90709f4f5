"""What is due for delivery, and the notices that wait for somebody who delivers."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from ...types import LeaseKey
from .rows import REMOTE
from .tables import LIVE

_WAITING = "status IN ('pending', 'failed')"
_SERVED = "(webhook_url <> '' OR id IN (SELECT value FROM json_each(?)))"


_IN_FLIGHT = """
SELECT e.id, d.id FROM dispatches d JOIN executions e ON e.n = d.execution
WHERE d.agent_id = ? AND d.status = 'in_flight'"""


class Notice(NamedTuple):
    """A lease that is over, and whose agent asked to be told."""

    agent_id: str
    execution_id: str
    dispatch_id: str
    attempt: int
    lease_seconds: float


class Agenda(NamedTuple):
    """When an agent has something to be claimed, at the earliest; ``None`` when it has not."""

    agent_id: str
    due: float | None
    """On the boot-time clock."""
    lease_ends: float | None
    """On the monotonic clock: the first lease that runs out."""
    held_elsewhere: int
    """Leases that end with the other process that holds them."""


def agendas(db: sqlite3.Connection, hosted: str, here: str) -> list[Agenda]:
    """Of every agent with a webhook and of the ``hosted`` ones (a JSON array of their ids).

    ``here``: the nonce of this process.
    """
    rows = db.execute(
        f"""
        SELECT a.id,
          (SELECT min(due) FROM dispatches d WHERE d.agent_id = a.id AND d.{_WAITING}),
          (SELECT min(renewed + lease_seconds) FROM dispatches d
           WHERE d.agent_id = a.id AND d.status = 'in_flight'),
          (SELECT count(*) FROM dispatches d
           WHERE d.agent_id = a.id AND d.status = 'in_flight' AND d.owner NOT IN (?, ?))
        FROM agents a WHERE {_SERVED}""",
        (REMOTE, here, hosted),
    )
    return [Agenda._make(row) for row in rows]


def due(
    db: sqlite3.Connection, agent_id: str, boottime: float, limit: int
) -> list[tuple[str, str]]:
    """Execution and dispatch ids of what waits and is due, the longest due first."""
    return db.execute(
        "SELECT e.id, d.id FROM dispatches d JOIN executions e ON e.n = d.execution"
        f" WHERE d.agent_id = ? AND d.{_WAITING} AND d.due <= ? ORDER BY d.due LIMIT ?",
        (agent_id, boottime, limit),
    ).fetchall()


def run_out(db: sqlite3.Connection, agent_id: str, monotonic: float) -> list[tuple[str, str]]:
    """Execution and dispatch ids whose lease has run out."""
    return db.execute(
        f"{_IN_FLIGHT} AND d.renewed + d.lease_seconds < ? ORDER BY d.renewed",
        (agent_id, monotonic),
    ).fetchall()


def held_elsewhere(db: sqlite3.Connection, agent_id: str, here: str) -> list[tuple[str, str]]:
    """Execution and dispatch ids whose lease another process holds, which may have ended."""
    return db.execute(
        f"{_IN_FLIGHT} AND d.owner NOT IN (?, ?) ORDER BY d.renewed", (agent_id, REMOTE, here)
    ).fetchall()


def is_held(db: sqlite3.Connection, lease: LeaseKey) -> bool:
    """Whether the attempt is the newest of its dispatch, and that is in flight."""
    sql = "SELECT 1 FROM dispatches WHERE id = ? AND attempt = ? AND status = 'in_flight'"
    return db.execute(sql, (lease.dispatch_id, lease.attempt)).fetchone() is not None


def attempt_of(db: sqlite3.Connection, dispatch_id: str) -> tuple[str, int] | None:
    """The execution of a dispatch, and its newest attempt."""
    found: tuple[str, int] | None = db.execute(
        "SELECT e.id, d.attempt FROM dispatches d JOIN executions e ON e.n = d.execution"
        " WHERE d.id = ?",
        (dispatch_id,),
    ).fetchone()
    return found


def newest_attempt(db: sqlite3.Connection, execution_id: str) -> tuple[str, int] | None:
    """The newest dispatch of an execution, and its newest attempt."""
    found: tuple[str, int] | None = db.execute(
        "SELECT d.id, d.attempt FROM dispatches d JOIN executions e ON e.n = d.execution"
        " WHERE e.id = ? ORDER BY d.n DESC LIMIT 1",
        (execution_id,),
    ).fetchone()
    return found


def next_deadline(db: sqlite3.Connection) -> float | None:
    """When the next execution's time is over, on the boot-time clock."""
    sql = f"SELECT min(deadline_due) FROM executions WHERE deadline_due IS NOT NULL AND {LIVE}"
    found: float | None = db.execute(sql).fetchone()[0]
    return found


# -- how a delivery ended


def delivered(db: sqlite3.Connection, dispatch: int) -> None:
    db.execute("UPDATE dispatches SET failures = 0 WHERE n = ?", (dispatch,))


def undelivered(
    db: sqlite3.Connection, dispatch: int, strikes: int, due_at: int, due_: float
) -> None:
    db.execute(
        "UPDATE dispatches SET status = 'failed', owner = NULL, failures = failures + 1,"
        " strikes = ?, due_at = ?, due = ? WHERE n = ?",
        (strikes, due_at, due_, dispatch),
    )


def hasten(db: sqlite3.Connection, agent_id: str, due_at: int, due_: float) -> None:
    """The agent can be reached again: what waits for another try is due now."""
    db.execute(
        "UPDATE dispatches SET due_at = ?, due = ? WHERE agent_id = ? AND status = 'failed'"
        " AND failures > 0 AND due > ?",
        (due_at, due_, agent_id, due_),
    )


def failures(db: sqlite3.Connection, dispatch: int) -> int:
    found: int = db.execute("SELECT failures FROM dispatches WHERE n = ?", (dispatch,)).fetchone()[
        0
    ]
    return found


# -- notices


def want_notice(db: sqlite3.Connection, dispatch: int) -> None:
    db.execute("UPDATE dispatches SET wants_notice = 1 WHERE n = ?", (dispatch,))


def leave_notice(db: sqlite3.Connection, execution: int) -> None:
    """Have the agent told that the lease under which it runs the execution is over, if it asked."""
    db.execute(
        "INSERT INTO notices (agent_id, execution_id, dispatch_id, attempt, lease_seconds)"
        " SELECT d.agent_id, e.id, d.id, d.attempt, d.lease_seconds"
        " FROM dispatches d JOIN executions e ON e.n = d.execution"
        " WHERE d.execution = ? AND d.status = 'in_flight' AND d.wants_notice",
        (execution,),
    )


def notices_for(db: sqlite3.Connection, agent_ids: Sequence[str]) -> bool:
    marks = ", ".join("?" * len(agent_ids))
    sql = f"SELECT 1 FROM notices WHERE agent_id IN ({marks}) LIMIT 1"
    return db.execute(sql, agent_ids).fetchone() is not None


def take_notices(db: sqlite3.Connection, agent_ids: Sequence[str]) -> list[Notice]:
    marks = ", ".join("?" * len(agent_ids))
    rows = db.execute(
        f"DELETE FROM notices WHERE agent_id IN ({marks})"
        " RETURNING agent_id, execution_id, dispatch_id, attempt, lease_seconds",
        agent_ids,
    ).fetchall()
    return [Notice._make(row) for row in rows]
