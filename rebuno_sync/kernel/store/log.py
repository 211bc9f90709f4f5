"""The log of an execution: appending events, and reading them with what they are about."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from . import texts


def last_seq(db: sqlite3.Connection, execution: int) -> int:
    (seq,) = db.execute(
        "SELECT coalesce(max(seq), 0) FROM events WHERE execution = ?", (execution,)
    ).fetchone()
    return int(seq)


_APPEND = "INSERT INTO events (execution, seq, type, step, detail, occurred_at) VALUES "
_ONE = "(?, ?, ?, ?, ?, ?)"


def append_events(
    db: sqlite3.Connection,
    execution: int,
    after_seq: int,
    entries: Sequence[tuple[str, int | None, str | None]],
    now: int,
) -> None:
    """Append ``(type, step number, detail)`` entries with consecutive numbers, in one statement."""
    values: list[object] = []
    for offset, (kind, step_number, detail) in enumerate(entries, 1):
        packed = texts.pack(db, detail)
        values += (execution, after_seq + offset, kind, step_number, packed, now)
    db.execute(_APPEND + ", ".join([_ONE] * len(entries)), values)


_EVENTS = """
SELECT v.seq, v.type, v.detail, v.occurred_at,
       CASE WHEN v.type = 'execution.completed' THEN e.output END, e.failure_reason,
       s.step_id, s.kind, s.target,
       CASE WHEN v.type IN ('step.failed', 'step.denied', 'step.cancelled') THEN s.error END
FROM events v JOIN executions e ON e.n = v.execution LEFT JOIN steps s ON s.n = v.step
WHERE v.execution = ? AND v.seq > ? ORDER BY v.seq LIMIT ?"""


def events(
    db: sqlite3.Connection, execution: int, after_seq: int, limit: int
) -> list[tuple[object, ...]]:
    """With the output of an execution that completed, and the error of a step that did not."""
    rows = db.execute(_EVENTS, (execution, after_seq, limit)).fetchall()
    return [tuple(texts.unpack(db, value) for value in row) for row in rows]
