"""What agents elsewhere have asked under their leases: who, places of calls, answered requests."""

from __future__ import annotations

import sqlite3


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
