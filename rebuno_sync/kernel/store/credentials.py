"""The table of API keys."""

from __future__ import annotations

import sqlite3

from .rows import KeyRow

_KEY = ", ".join(KeyRow._fields)


def put_key(db: sqlite3.Connection, row: KeyRow) -> None:
    db.execute(f"INSERT OR REPLACE INTO api_keys ({_KEY}) VALUES (?, ?, ?, ?, ?, ?)", row)


def key(db: sqlite3.Connection, key_id: str) -> KeyRow | None:
    row = db.execute(f"SELECT {_KEY} FROM api_keys WHERE id = ?", (key_id,)).fetchone()
    return None if row is None else KeyRow._make(row)


def keys(db: sqlite3.Connection) -> list[KeyRow]:
    """The oldest first: their ids ascend with time."""
    return [KeyRow._make(row) for row in db.execute(f"SELECT {_KEY} FROM api_keys ORDER BY id")]
