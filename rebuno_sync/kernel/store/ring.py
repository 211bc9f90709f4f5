"""Pieces of streams on their way to other processes: a ring of rows, and who listens."""

from __future__ import annotations

import sqlite3

from ...types import Delta

MOST_ROWS = 512
"""Of at most 7,000 bytes each, so the ring has at most some 4 MB."""


def put_listener(db: sqlite3.Connection, kernel: str, execution_id: str, until: float) -> None:
    """``until``: on the boot-time clock."""
    db.execute("DELETE FROM listeners WHERE until < ?", (until - 3600,))
    db.execute("INSERT OR REPLACE INTO listeners VALUES (?, ?, ?)", (execution_id, kernel, until))


def has_listener(db: sqlite3.Connection, execution_id: str, besides: str, now: float) -> bool:
    """Whether another kernel than ``besides`` listens to an execution."""
    sql = "SELECT 1 FROM listeners WHERE execution_id = ? AND kernel <> ? AND until >= ? LIMIT 1"
    return db.execute(sql, (execution_id, besides, now)).fetchone() is not None


def put(db: sqlite3.Connection, kernel: str, execution_id: str, delta: Delta) -> None:
    cursor = db.execute(
        "INSERT INTO deltas (kernel, execution_id, step_id, seq, data) VALUES (?, ?, ?, ?, ?)",
        (kernel, execution_id, *delta),
    )
    assert cursor.lastrowid is not None
    # The newest row always stays, so numbers go on rising.
    db.execute("DELETE FROM deltas WHERE n <= ?", (cursor.lastrowid - MOST_ROWS,))


def last(db: sqlite3.Connection) -> int:
    n: int = db.execute("SELECT coalesce(max(n), 0) FROM deltas").fetchone()[0]
    return n


def since(db: sqlite3.Connection, n: int, besides: str) -> list[tuple[int, str, Delta]]:
    """What other kernels than ``besides`` have put there, with its number and execution."""
    sql = (
        "SELECT n, execution_id, step_id, seq, data FROM deltas WHERE n > ? AND kernel <> ?"
        " ORDER BY n"
    )
    return [(row[0], row[1], Delta(*row[2:])) for row in db.execute(sql, (n, besides))]
