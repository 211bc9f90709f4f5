"""Long JSON texts in the file, with what they have in common stored once.

A packed text is a BLOB where a text would stand: a JSON array of short texts and of numbers in
``cells``. A cell is a part of a text and the cell before it, so an array that continues another
adds a cell for each new member. Both count who needs them, and go with the last.
"""

from __future__ import annotations

import json
import sqlite3
from hashlib import sha256
from typing import overload

from ...errors import api_error
from .splitting import SHORTEST_PART, SHORTEST_TEXT, cuts_of

__all__ = ["PACKED", "Packed", "pack", "release", "unpack"]

Packed = str | bytes
"""What stands in the column: the text, or how to put it together."""

PACKED = {
    "executions": ("input", "output", "state"),
    "steps": ("args", "result", "error"),
    "events": ("detail",),
}
"""By table, the columns whose long texts are packed."""


def pack(db: sqlite3.Connection, text: object) -> Packed | None:
    """Store what is worth it beside; what is to stand in the column.

    ``text``: a text, ``None``, or what stands in another column, which is needed once more then.
    """
    if isinstance(text, bytes):
        for cell in _cells(text):
            _need(db, cell)
        return text
    if not isinstance(text, str):
        return None
    if len(text) < SHORTEST_TEXT:
        return text
    recipe: list[str | int] = []
    at = 0
    for start, parts in cuts_of(text):
        recipe += [_between(db, text[at:start]), _chain(db, parts)]
        at = start + sum(map(len, parts))
    recipe.append(_between(db, text[at:]))
    return json.dumps(recipe).encode()


def _between(db: sqlite3.Connection, text: str) -> str | int:
    """What lies between two cuts; all of a text that has none."""
    return text if len(text) < SHORTEST_PART else _chain(db, [text])


def _cells(packed: bytes) -> list[int]:
    return [item for item in json.loads(packed) if isinstance(item, int)]


def _chain(db: sqlite3.Connection, parts: list[str]) -> int:
    """The last cell of a chain of ``parts``, needed once more than before."""
    cell = 0
    for part in parts:
        digest = sha256(part.encode("utf-8", "surrogatepass")).digest()
        row = db.execute(_CELL, (cell, digest)).fetchone()
        cell = _new_cell(db, cell, part, digest) if row is None else row[0]
    _need(db, cell)
    return cell


_CELL = """
SELECT c.n FROM bodies b JOIN cells c ON c.prev = ? AND c.body = b.n WHERE b.hash = ?"""


def _new_cell(db: sqlite3.Connection, prev: int, part: str, digest: bytes) -> int:
    _need(db, prev)
    sql = (
        "INSERT INTO bodies (hash, text, needed) VALUES (?, ?, 1)"
        " ON CONFLICT DO UPDATE SET needed = needed + 1 RETURNING n"
    )
    [(body,)] = db.execute(sql, (digest, part)).fetchall()
    sql = "INSERT INTO cells (prev, body, needed) VALUES (?, ?, 0) RETURNING n"
    [(cell,)] = db.execute(sql, (prev, body)).fetchall()
    return int(cell)


def _need(db: sqlite3.Connection, cell: int) -> None:
    db.execute("UPDATE cells SET needed = needed + 1 WHERE n = ?", (cell,))


_PARTS = """
WITH RECURSIVE chain (prev, body, back) AS (
  SELECT prev, body, 0 FROM cells WHERE n = ?
  UNION ALL
  SELECT c.prev, c.body, back + 1 FROM chain JOIN cells c ON c.n = chain.prev
)
SELECT b.text, chain.prev FROM chain JOIN bodies b ON b.n = chain.body ORDER BY back DESC"""


@overload
def unpack(db: sqlite3.Connection, stored: Packed) -> str: ...
@overload
def unpack(db: sqlite3.Connection, stored: Packed | None) -> str | None: ...
def unpack(db: sqlite3.Connection, stored: Packed | None) -> str | None:
    """The text, as it was."""
    if not isinstance(stored, bytes):
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
        for cell in _cells(stored):
            _release_cell(db, cell)


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
