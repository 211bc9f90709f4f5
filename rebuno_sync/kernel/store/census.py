"""How many there are, by their status."""

from __future__ import annotations

import sqlite3


def executions(db: sqlite3.Connection) -> list[tuple[str, int]]:
    return db.execute("SELECT status, count(*) FROM executions GROUP BY status").fetchall()


def open_dispatches(db: sqlite3.Connection) -> list[tuple[str, int]]:
    sql = "SELECT status, count(*) FROM dispatches WHERE status {} GROUP BY status"
    # In the words of the two indexes.
    waiting, held = sql.format("IN ('pending', 'failed')"), sql.format("= 'in_flight'")
    return db.execute(waiting).fetchall() + db.execute(held).fetchall()
