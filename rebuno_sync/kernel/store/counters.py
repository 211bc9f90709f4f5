"""What policies count: token buckets, and the tokens that model calls have used up."""

from __future__ import annotations

import sqlite3


def bucket(db: sqlite3.Connection, key: str) -> tuple[float, float] | None:
    """The tokens in a bucket, and when they were counted, on the boot-time clock."""
    sql = "SELECT tokens, filled FROM rate_buckets WHERE key = ?"
    found: tuple[float, float] | None = db.execute(sql, (key,)).fetchone()
    return found


def put_bucket(db: sqlite3.Connection, key: str, tokens: float, now: int, boottime: float) -> None:
    db.execute(
        "INSERT OR REPLACE INTO rate_buckets (key, tokens, filled_at, filled) VALUES (?, ?, ?, ?)",
        (key, tokens, now, boottime),
    )


def has_idle_buckets(db: sqlite3.Connection, wall: int) -> bool:
    """Whether there are buckets that nothing took from since ``wall``."""
    sql = "SELECT 1 FROM rate_buckets WHERE filled_at < ? LIMIT 1"
    return db.execute(sql, (wall,)).fetchone() is not None


def drop_idle_buckets(db: sqlite3.Connection, wall: int) -> None:
    db.execute("DELETE FROM rate_buckets WHERE filled_at < ?", (wall,))


def was_rate_limited(db: sqlite3.Connection, execution: int) -> bool:
    """Whether a limit has refused or parked a call of the execution before."""
    sql = "SELECT 1 FROM events WHERE execution = ? AND type = 'step.rate_limited' LIMIT 1"
    return db.execute(sql, (execution,)).fetchone() is not None


def set_usage(db: sqlite3.Connection, step: int, usage: str) -> None:
    """``usage``: JSON with ``input_tokens`` and ``output_tokens``."""
    db.execute("UPDATE steps SET usage = ? WHERE n = ?", (usage, step))


_SPENT = """
SELECT coalesce(sum(json_extract(usage, '$.input_tokens')
                    + json_extract(usage, '$.output_tokens')), 0)
FROM steps WHERE usage IS NOT NULL AND execution """
_OF_ITS_SESSION = """IN (
  SELECT e.n FROM executions e JOIN executions one ON one.session = e.session WHERE one.n = ?)"""


def spent_tokens(db: sqlite3.Connection, execution: int, scope: str) -> int:
    """What the model calls of an execution, or of its session if it has one, have used up."""
    found: int = 0
    if scope == "session":
        found = db.execute(_SPENT + _OF_ITS_SESSION, (execution,)).fetchone()[0]
    return found or int(db.execute(_SPENT + "= ?", (execution,)).fetchone()[0])
