"""What forks copy, and the policies that they have of their own."""

from __future__ import annotations

import sqlite3

from . import texts


def log_until(
    db: sqlite3.Connection, execution: int, seq: int
) -> list[tuple[int, str, int | None, str | None]]:
    """Number, type, step and detail of the events up to ``seq``, in order."""
    rows = db.execute(
        "SELECT seq, type, step, detail FROM events WHERE execution = ? AND seq <= ? ORDER BY seq",
        (execution, seq),
    ).fetchall()
    return [(*row[:3], texts.unpack(db, row[3])) for row in rows]


def own_policy(db: sqlite3.Connection, execution: int) -> str:
    """The bundle that counts for an execution instead of its agent's; empty when none does."""
    sql = "SELECT policy_bundle FROM executions WHERE n = ?"
    return db.execute(sql, (execution,)).fetchone()[0] or ""


def set_own_policy(db: sqlite3.Connection, execution: int, bundle: str) -> None:
    db.execute("UPDATE executions SET policy_bundle = ? WHERE n = ?", (bundle, execution))


def told_of_fork(db: sqlite3.Connection, execution: int) -> str:
    """What the event says that made the execution a fork, as JSON."""
    sql = "SELECT detail FROM events WHERE execution = ? AND type = 'execution.forked'"
    stored: texts.Packed = db.execute(sql, (execution,)).fetchone()[0]
    return texts.unpack(db, stored)


def give_up_key(db: sqlite3.Connection, execution: int) -> None:
    """Another execution is to have its key."""
    db.execute("UPDATE executions SET idempotency_key = NULL WHERE n = ?", (execution,))
