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


def spent_tokens(db: sqlite3.Connection, execution: int) -> int:
    """What the model calls of an execution have used up."""
    found: int = db.execute(
        "SELECT coalesce(sum(json_extract(usage, '$.input_tokens')"
        " + json_extract(usage, '$.output_tokens')), 0)"
        " FROM steps WHERE execution = ? AND usage IS NOT NULL",
        (execution,),
    ).fetchone()[0]
    return found
