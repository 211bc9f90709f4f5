"""Executions that others follow on: of one session, of one parent, of one step."""

from __future__ import annotations

import sqlite3

from . import texts
from .tables import LIVE


def in_session(db: sqlite3.Connection, session: str, statuses: str) -> bool:
    """Whether the session has an execution in one of the statuses (SQL)."""
    sql = f"SELECT 1 FROM executions WHERE session = ? AND status IN ({statuses}) LIMIT 1"
    return db.execute(sql, (session,)).fetchone() is not None


def session_exists(db: sqlite3.Connection, session: str) -> bool:
    sql = "SELECT 1 FROM executions WHERE session = ? LIMIT 1"
    return db.execute(sql, (session,)).fetchone() is not None


def session_of(db: sqlite3.Connection, n: int) -> str:
    """The session of an execution; empty when it has none."""
    row = db.execute("SELECT session FROM executions WHERE n = ?", (n,)).fetchone()
    return row[0] or ""


def next_in_session(db: sqlite3.Connection, session: str, boottime: float) -> str | None:
    """The id of the first execution of the session that has not begun and whose time is not
    over."""
    row = db.execute(
        "SELECT id FROM executions WHERE session = ? AND status = 'pending'"
        " AND (deadline_due IS NULL OR deadline_due > ?) ORDER BY id LIMIT 1",
        (session, boottime),
    ).fetchone()
    return None if row is None else row[0]


def last_completed(db: sqlite3.Connection, session: str, agent_id: str) -> str | None:
    """The id of the agent's completed execution of the session that was created last."""
    row = db.execute(
        "SELECT id FROM executions WHERE session = ? AND agent_id = ? AND status = 'completed'"
        " ORDER BY id DESC LIMIT 1",
        (session, agent_id),
    ).fetchone()
    return None if row is None else row[0]


def begin(db: sqlite3.Connection, n: int, parent: str | None, now: int) -> None:
    db.execute(
        "UPDATE executions SET status = 'running', parent = ?, updated_at = ? WHERE n = ?",
        (parent, now, n),
    )


def left_behind(db: sqlite3.Connection, execution_id: str) -> str | None:
    """What an execution left to the next: its state, else its output (protocol.md 9.3)."""
    sql = "SELECT coalesce(state, output) FROM executions WHERE id = ?"
    row = db.execute(sql, (execution_id,)).fetchone()
    return None if row is None else texts.unpack(db, row[0])


# -- subagents


def live_descendants(db: sqlite3.Connection, execution_id: str) -> list[str]:
    """The ids of the live executions that were spawned by it, by those, and so on."""
    sql = f"""
    WITH RECURSIVE below (id, status, depth) AS (
      SELECT id, status, 1 FROM executions WHERE spawner = ?
      UNION ALL
      SELECT e.id, e.status, below.depth + 1 FROM executions e JOIN below ON e.spawner = below.id
      WHERE below.{LIVE}
    ) SELECT id FROM below WHERE {LIVE} ORDER BY depth, id"""
    return [row[0] for row in db.execute(sql, (execution_id,)).fetchall()]


def sessions_above(db: sqlite3.Connection, execution_id: str) -> set[str]:
    """The sessions of an execution, of the one that spawned it, and so on."""
    sql = """
    WITH RECURSIVE above (spawner, session) AS (
      SELECT spawner, session FROM executions WHERE id = ?
      UNION
      SELECT e.spawner, e.session FROM executions e JOIN above ON e.id = above.spawner
    ) SELECT session FROM above WHERE session IS NOT NULL"""
    return {row[0] for row in db.execute(sql, (execution_id,)).fetchall()}


def is_spawner(db: sqlite3.Connection, execution_id: str, step_id: str) -> bool:
    """Whether the step has a subagent, whatever became of it."""
    sql = "SELECT 1 FROM executions WHERE spawner = ? AND spawner_step = ? LIMIT 1"
    return db.execute(sql, (execution_id, step_id)).fetchone() is not None


def awaits_subagent(db: sqlite3.Connection, execution: int) -> bool:
    """Whether an executing step of the execution is one that a subagent stands for."""
    row = db.execute(
        "SELECT 1 FROM executions e JOIN executions c ON c.spawner = e.id"
        " JOIN steps s ON s.execution = e.n AND s.step_id = c.spawner_step"
        " WHERE e.n = ? AND s.status = 'executing' LIMIT 1",
        (execution,),
    ).fetchone()
    return row is not None
