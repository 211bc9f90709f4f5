"""Long JSON texts in the file, with what they have in common stored once.

A packed text is a BLOB where a text would stand: a JSON array of literal texts and of numbers in
``cells``. A cell is a part of a text and the cell before it, so an array that continues another
adds a cell for each new member. Both count who needs them, and go with the last.
"""

from __future__ import annotations

import json
import sqlite3
from hashlib import sha256

from ...errors import api_error
from .splitting import cuts_of

__all__ = ["Packed", "pack", "release", "unpack"]

Packed = str | bytes
"""What stands in the column: the text, or how to put it together."""


def pack(db: sqlite3.Connection, text: str) -> Packed:
    """Store what is worth it beside; what is to stand in the column."""
    recipe: list[str | int] = []
    at = 0
    for start, parts in cuts_of(text):
        recipe += [text[at:start], _chain(db, parts)]
        at = start + sum(map(len, parts))
    if not recipe:
        return text
    recipe.append(text[at:])
    return json.dumps(recipe).encode()


def _chain(db: sqlite3.Connection, parts: list[str]) -> int:
    """The last cell of a chain of ``parts``, needed once more than before."""
    cell = 0
    for part in parts:
        body = _body(db, part)
        row = db.execute("SELECT n FROM cells WHERE prev = ? AND body = ?", (cell, body)).fetchone()
        if row is None:
            _need(db, "bodies", body)
            _need(db, "cells", cell)
            sql = "INSERT INTO cells (prev, body, needed) VALUES (?, ?, 0) RETURNING n"
            row = db.execute(sql, (cell, body)).fetchone()
        cell = row[0]
    _need(db, "cells", cell)
    return cell


def _body(db: sqlite3.Connection, part: str) -> int:
    content = part.encode("utf-8", "surrogatepass")
    digest = sha256(content).digest()
    row = db.execute("SELECT n FROM bodies WHERE hash = ?", (digest,)).fetchone()
    if row is None:
        sql = "INSERT INTO bodies (hash, text, needed) VALUES (?, ?, 0) RETURNING n"
        row = db.execute(sql, (digest, part)).fetchone()
    n: int = row[0]
    return n


def _need(db: sqlite3.Connection, table: str, n: int) -> None:
    db.execute(f"UPDATE {table} SET needed = needed + 1 WHERE n = ?", (n,))


_PARTS = """
WITH RECURSIVE chain (prev, body, back) AS (
  SELECT prev, body, 0 FROM cells WHERE n = ?
  UNION ALL
  SELECT c.prev, c.body, back + 1 FROM chain JOIN cells c ON c.n = chain.prev
)
SELECT b.text, chain.prev FROM chain JOIN bodies b ON b.n = chain.body ORDER BY back DESC"""


def unpack(db: sqlite3.Connection, stored: Packed) -> str:
    """The text, as it was."""
    if isinstance(stored, str):
        return stored
    return "".join(
        item if isinstance(item, str) else _joined(db, item) for item in json.loads(stored)
    )


def _joined(db: sqlite3.Connection, cell: int) -> str:
    rows = db.execute(_PARTS, (cell,)).fetchall()
    if not rows or rows[0][1]:
        raise api_error("not_found", "not found: the execution was removed meanwhile", 404)
    return "".join(text for text, _ in rows)


def release(db: sqlite3.Connection, stored: Packed) -> None:
    """The column's row goes: what only it needed goes too."""
    if isinstance(stored, bytes):
        for item in json.loads(stored):
            if isinstance(item, int):
                _release_cell(db, item)


def _release_cell(db: sqlite3.Connection, cell: int) -> None:
    sql = "UPDATE {} SET needed = needed - 1 WHERE n = ? RETURNING {}"
    while cell:
        [(needed, prev, body)] = db.execute(
            sql.format("cells", "needed, prev, body"), (cell,)
        ).fetchall()
        if needed:
            return
        db.execute("DELETE FROM cells WHERE n = ?", (cell,))
        [(left,)] = db.execute(sql.format("bodies", "needed"), (body,)).fetchall()
        if not left:
            db.execute("DELETE FROM bodies WHERE n = ?", (body,))
        cell = prev
