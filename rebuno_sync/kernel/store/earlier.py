"""What an attempt needs to know of the steps that were recorded before it."""

from __future__ import annotations

import sqlite3

from ...types import Recorded, StepKind, StepStatus
from .rows import StepRow

__all__ = ["recorded_steps", "started"]

_SLEEP = (StepStatus.EXECUTING, StepKind.LOCAL, "sleep")
"""What is counted from its start: how old that is must not change when the wall clock is set."""


def recorded_steps(
    db: sqlite3.Connection, execution_id: str, wall: int, boottime: float
) -> list[Recorded]:
    """Every step of the execution in the order in which they were recorded, without its values."""
    rows = db.execute(
        "SELECT s.step_id, s.kind, s.target, s.args_hash,"
        " s.status IN ('succeeded', 'failed', 'denied', 'cancelled'),"
        " s.idempotency, s.parent,"
        " CASE WHEN (s.status, s.kind, s.target) = (?, ?, ?) AND s.started_due IS NOT NULL"
        " THEN ? - CAST((? - s.started_due) * 1e6 AS INTEGER) ELSE s.started_at END,"
        " s.completed_at"
        " FROM executions e JOIN steps s ON s.execution = e.n WHERE e.id = ? ORDER BY s.n",
        (*_SLEEP, wall, boottime, execution_id),
    )
    return list(
        map(Recorded._make, rows)
    )  # Read at the start of every attempt: no Python for each.


def started(row: StepRow, wall: int, boottime: float) -> int | None:
    """When a step began, as ``recorded_steps`` tells it."""
    if (row.status, row.kind, row.target) != _SLEEP or row.started_due is None:
        return row.started_at
    return wall - int((boottime - row.started_due) * 1e6)
