"""What agents elsewhere have asked under their leases: who, places of calls, answered requests."""

from __future__ import annotations

import sqlite3

from ...types import LeaseKey


def named_in_full(db: sqlite3.Connection, lease: LeaseKey) -> LeaseKey:
    """``lease``; where it names no attempt, the newest one of its dispatch, or of the newest
    dispatch when it names none either: agents of the first generation say no more, and their
    kernel had no fence (protocol.md 2.2, 5.4)."""
    if lease.attempt:
        return lease
    row = db.execute(
        "SELECT d.id, d.attempt FROM executions e JOIN dispatches d ON d.execution = e.n"
        " WHERE e.id = ? AND ? IN (d.id, '') ORDER BY d.n DESC LIMIT 1",
        (lease.execution_id, lease.dispatch_id),
    ).fetchone()
    return lease if row is None else lease._replace(dispatch_id=row[0], attempt=row[1])


def bind_runner(db: sqlite3.Connection, dispatch: int, runner: str) -> None:
    """From its first request on, an attempt is its runner's."""
    db.execute("UPDATE dispatches SET runner = ? WHERE n = ?", (runner, dispatch))


def next_occurrence(db: sqlite3.Connection, dispatch: int, call: bytes) -> int:
    sql = "SELECT next FROM occurrences WHERE dispatch = ? AND call = ?"
    row = db.execute(sql, (dispatch, call)).fetchone()
    return 0 if row is None else row[0]


def set_next_occurrence(db: sqlite3.Connection, dispatch: int, call: bytes, following: int) -> None:
    db.execute("INSERT OR REPLACE INTO occurrences VALUES (?, ?, ?)", (dispatch, call, following))


def answered(db: sqlite3.Connection, dispatch: int, request_id: bytes) -> tuple[bytes, str] | None:
    """The hash of what was asked under that id, and what was answered."""
    sql = "SELECT content, answers FROM requests WHERE dispatch = ? AND request_id = ?"
    found: tuple[bytes, str] | None = db.execute(sql, (dispatch, request_id)).fetchone()
    return found


def put_answered(
    db: sqlite3.Connection, dispatch: int, request_id: bytes, content: bytes, answers: str
) -> None:
    db.execute("INSERT INTO requests VALUES (?, ?, ?, ?)", (dispatch, request_id, content, answers))


def forget(db: sqlite3.Connection, execution: int) -> None:
    """Nobody asks any more: the execution has ended."""
    of_it = "WHERE dispatch IN (SELECT n FROM dispatches WHERE execution = ?)"
    db.execute(f"DELETE FROM occurrences {of_it}", (execution,))
    db.execute(f"DELETE FROM requests {of_it}", (execution,))
