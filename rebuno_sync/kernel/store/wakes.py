"""The sleeps of parked executions."""

from __future__ import annotations

import sqlite3


def put(db: sqlite3.Connection, step: int, execution: int, due_at: int, due: float) -> None:
    """One for each step: asked again, it counts anew."""
    sql = "INSERT OR REPLACE INTO wakes (step, execution, due_at, due) VALUES (?, ?, ?, ?)"
    db.execute(sql, (step, execution, due_at, due))


def overdue(db: sqlite3.Connection, boottime: float, limit: int) -> list[tuple[int, int]]:
    """Step and execution of those whose time is over, the longest due first."""
    sql = "SELECT step, execution FROM wakes WHERE due <= ? ORDER BY due, step LIMIT ?"
    return db.execute(sql, (boottime, limit)).fetchall()


def next_due(db: sqlite3.Connection) -> float | None:
    """When the next one is over, on the boot-time clock."""
    found: float | None = db.execute("SELECT min(due) FROM wakes").fetchone()[0]
    return found


def forget_step(db: sqlite3.Connection, step: int) -> None:
    db.execute("DELETE FROM wakes WHERE step = ?", (step,))


def forget(db: sqlite3.Connection, execution: int) -> None:
    """Nobody waits for them: the execution has ended."""
    db.execute("DELETE FROM wakes WHERE execution = ?", (execution,))
