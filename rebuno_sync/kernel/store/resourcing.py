"""Resources and their checkpoints."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple


class ResourceRow(NamedTuple):
    key: str
    driver_id: str
    configuration: str | None
    coverage_reuse: int
    every_steps: int
    on_completion: int
    registered_seq: int
    generation: int = 0
    changes: int = 0
    binding: str | None = None
    checkpoint_ref: str | None = None


class CheckpointRow(NamedTuple):
    key: str
    generation: int
    checkpoint_ref: str
    covered_seq: int
    invalidated_seq: int | None = None


_RESOURCE = ", ".join(ResourceRow._fields)
_CHECKPOINT = ", ".join(CheckpointRow._fields)


def resources(db: sqlite3.Connection, execution: int) -> list[ResourceRow]:
    """By key."""
    sql = f"SELECT {_RESOURCE} FROM resources WHERE execution = ? ORDER BY key"
    return list(map(ResourceRow._make, db.execute(sql, (execution,)).fetchall()))


def resource(db: sqlite3.Connection, execution: int, key: str) -> ResourceRow | None:
    sql = f"SELECT {_RESOURCE} FROM resources WHERE execution = ? AND key = ?"
    row = db.execute(sql, (execution, key)).fetchone()
    return None if row is None else ResourceRow._make(row)


def put_resource(db: sqlite3.Connection, execution: int, row: ResourceRow) -> None:
    marks = ", ".join("?" * (len(row) + 1))
    sql = f"INSERT OR REPLACE INTO resources (execution, {_RESOURCE}) VALUES ({marks})"
    db.execute(sql, (execution, *row))


def checkpoints(db: sqlite3.Connection, execution: int) -> list[CheckpointRow]:
    """In the order of what they cover."""
    sql = f"SELECT {_CHECKPOINT} FROM checkpoints WHERE execution = ? ORDER BY covered_seq, n"
    return list(map(CheckpointRow._make, db.execute(sql, (execution,)).fetchall()))


def is_covered(db: sqlite3.Connection, execution: int, row: ResourceRow) -> bool:
    """Whether there is a checkpoint of the resource as it is now."""
    sql = (
        "SELECT 1 FROM checkpoints WHERE execution = ? AND key = ? AND generation = ?"
        " AND invalidated_seq IS NULL LIMIT 1"
    )
    return db.execute(sql, (execution, row.key, row.generation)).fetchone() is not None


def add_checkpoint(db: sqlite3.Connection, execution: int, row: CheckpointRow) -> None:
    marks = ", ".join("?" * (len(row) + 1))
    sql = f"INSERT INTO checkpoints (execution, {_CHECKPOINT}) VALUES ({marks})"
    db.execute(sql, (execution, *row))


def advance(db: sqlite3.Connection, execution: int, key: str, seq: int) -> None:
    """The resource is changed from event ``seq`` on: what was captured before is of the past."""
    db.execute(
        "UPDATE resources SET generation = generation + 1 WHERE execution = ? AND key = ?",
        (execution, key),
    )
    db.execute(
        "UPDATE checkpoints SET invalidated_seq = ?"
        " WHERE execution = ? AND key = ? AND invalidated_seq IS NULL",
        (seq, execution, key),
    )


def count_up(db: sqlite3.Connection, execution: int, key: str) -> None:
    """One more step that changed it is settled."""
    sql = "UPDATE resources SET changes = changes + 1 WHERE execution = ? AND key = ?"
    db.execute(sql, (execution, key))


# -- the steps that change them


def set_changed(db: sqlite3.Connection, step: int, keys: str) -> None:
    """``keys``: a JSON array."""
    db.execute("UPDATE steps SET resources = ? WHERE n = ?", (keys, step))


def changed(db: sqlite3.Connection, step: int) -> str | None:
    """The keys of what a step changes, as a JSON array."""
    found: str | None = db.execute("SELECT resources FROM steps WHERE n = ?", (step,)).fetchone()[0]
    return found


def changed_by_steps(db: sqlite3.Connection, execution: int) -> dict[int, str]:
    """By step number, the keys of what the step changes, as a JSON array."""
    sql = "SELECT n, resources FROM steps WHERE execution = ? AND resources IS NOT NULL"
    return dict(db.execute(sql, (execution,)).fetchall())


def changed_now(db: sqlite3.Connection, execution: int) -> dict[int, str]:
    """The same, of the steps that are executing."""
    sql = (
        "SELECT n, resources FROM steps"
        " WHERE execution = ? AND resources IS NOT NULL AND status = 'executing'"
    )
    return dict(db.execute(sql, (execution,)).fetchall())
