"""What an attempt needs to know of the steps that were recorded before it."""

from __future__ import annotations

import sqlite3

from ...types import Recorded

__all__ = ["recorded_steps"]


def recorded_steps(db: sqlite3.Connection, execution_id: str) -> list[Recorded]:
    """Every step of the execution in the order in which they were recorded, without its values."""
    rows = db.execute(
        "SELECT s.step_id, s.kind, s.target, s.args_hash,"
        " s.status IN ('succeeded', 'failed', 'denied', 'cancelled'),"
        " s.idempotency, s.parent, s.started_at, s.completed_at"
        " FROM executions e JOIN steps s ON s.execution = e.n WHERE e.id = ? ORDER BY s.n",
        (execution_id,),
    )
    return list(
        map(Recorded._make, rows)
    )  # Read at the start of every attempt: no Python for each.
