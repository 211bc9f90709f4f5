"""A new boot of the machine, whose clocks have begun anew."""

from __future__ import annotations

import sqlite3

from .tables import LIVE


def reclaim_all(db: sqlite3.Connection, now: int, boottime: float) -> None:
    """Under a new boot id no lease holds, and timers count from the wall clock (design, Time)."""
    db.execute(
        "UPDATE dispatches SET status = 'pending', owner = NULL, due_at = ?"
        " WHERE status = 'in_flight'",
        (now,),
    )
    db.execute(
        "UPDATE dispatches SET due = ? + (due_at - ?) / 1e6 WHERE status <> 'exhausted'",
        (boottime, now),
    )
    db.execute(
        "UPDATE steps SET retry_due = ? + (retry_at - ?) / 1e6"
        " WHERE status = 'allowed' AND retry_at IS NOT NULL",
        (boottime, now),
    )
    db.execute(
        "UPDATE steps SET started_due = ? + (started_at - ?) / 1e6 WHERE status = 'executing'",
        (boottime, now),
    )
    db.execute(
        "UPDATE executions SET deadline_due = ? + (deadline_at - ?) / 1e6"
        f" WHERE deadline_at IS NOT NULL AND {LIVE}",
        (boottime, now),
    )
    db.execute(
        "UPDATE approvals SET timeout_due = ? + (timeout_at - ?) / 1e6 WHERE status = 'pending'",
        (boottime, now),
    )
    db.execute("UPDATE wakes SET due = ? + (due_at - ?) / 1e6", (boottime, now))
    db.execute("UPDATE rate_buckets SET filled = ? + (filled_at - ?) / 1e6", (boottime, now))
    db.execute("DELETE FROM owners")
    db.execute("DELETE FROM listeners")
