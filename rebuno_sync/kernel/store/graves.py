"""What retention removes, and what it leaves of executions that had a key."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from . import texts
from .tables import LIVE

_ENDED = "status IN ('completed', 'failed', 'cancelled')"


class Tombstone(NamedTuple):
    """What is kept of a removed execution, so that its key never runs again."""

    agent_id: str
    idempotency_key: str
    execution_id: str
    input_hash: str
    status: str
    output: str | None
    output_bytes: int
    """More than ``output`` has when it was too large to keep."""
    failure_reason: str
    created_at: int
    updated_at: int


_FIELDS = ", ".join(Tombstone._fields)

_LINKS = {"parent": (), "spawner": ("spawner_step",), "forked_from": ("fork_seq",)}
"""Columns of an execution that name another one, with those that tell more of it."""


_PACKED = "\nUNION ALL ".join(
    f"SELECT {column} FROM {table} WHERE {'n' if table == 'executions' else 'execution'} = :n"
    f" AND typeof({column}) = 'blob'"
    for table, columns in texts.PACKED.items()
    for column in columns
)
"""What stands in the columns of an execution whose texts are packed."""


def ended_before(db: sqlite3.Connection, wall: int, limit: int) -> list[str]:
    """The ids of executions that have ended before ``wall``, the oldest first.

    Those of a session stay until all of it have, and a parent stays while one lives that goes on
    from its state.
    """
    # The planner would take the index of the statuses, and sort all that have ended.
    sql = f"""
    SELECT id FROM executions e INDEXED BY executions_ended
    WHERE {_ENDED} AND updated_at < :wall
      AND (session IS NULL OR NOT EXISTS (
        SELECT 1 FROM executions o WHERE o.session = e.session AND o.{LIVE}
        UNION ALL
        SELECT 1 FROM executions o WHERE o.session = e.session AND o.updated_at >= :wall))
      AND NOT EXISTS (SELECT 1 FROM executions o WHERE o.parent = e.id AND o.{LIVE})
    ORDER BY updated_at LIMIT :limit"""
    return [row[0] for row in db.execute(sql, {"wall": wall, "limit": limit})]


def bury(db: sqlite3.Connection, row: Tombstone) -> None:
    marks = ", ".join("?" * len(row))
    db.execute(f"INSERT OR REPLACE INTO tombstones ({_FIELDS}) VALUES ({marks})", row)


def remove(db: sqlite3.Connection, n: int) -> None:
    """Remove an execution with everything that belongs to it; nothing names it any more."""
    for link, others in _LINKS.items():
        cleared = ", ".join(f"{column} = NULL" for column in (link, *others))
        of_it = "(SELECT id FROM executions WHERE n = ?)"
        db.execute(f"UPDATE executions SET {cleared} WHERE {link} = {of_it}", (n,))
    of_it = "WHERE dispatch IN (SELECT n FROM dispatches WHERE execution = ?)"
    for table in ("occurrences", "requests"):
        db.execute(f"DELETE FROM {table} {of_it}", (n,))
    for (packed,) in db.execute(_PACKED, {"n": n}).fetchall():
        texts.release(db, packed)
    for table in tables_of_executions(db):
        db.execute(f"DELETE FROM {table} WHERE execution = ?", (n,))
    db.execute("DELETE FROM executions WHERE n = ?", (n,))


def tables_of_executions(db: sqlite3.Connection) -> list[str]:
    """The tables whose rows belong to an execution."""
    sql = (
        "SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) c"
        " WHERE m.type = 'table' AND c.name = 'execution' ORDER BY m.name"
    )
    return [row[0] for row in db.execute(sql)]


def by_key(db: sqlite3.Connection, agent_id: str, key: str) -> Tombstone | None:
    sql = f"SELECT {_FIELDS} FROM tombstones WHERE agent_id = ? AND idempotency_key = ?"
    row = db.execute(sql, (agent_id, key)).fetchone()
    return None if row is None else Tombstone._make(row)


def by_id(db: sqlite3.Connection, execution_id: str) -> Tombstone | None:
    sql = f"SELECT {_FIELDS} FROM tombstones WHERE execution_id = ?"
    row = db.execute(sql, (execution_id,)).fetchone()
    return None if row is None else Tombstone._make(row)
