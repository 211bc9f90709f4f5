"""The table of agents."""

from __future__ import annotations

import sqlite3

from .rows import AgentRow
from .tables import LIVE

_AGENT = ", ".join(AgentRow._fields)
_VALUES = ", ".join("?" * len(AgentRow._fields))


def put_agent(db: sqlite3.Connection, row: AgentRow) -> None:
    db.execute(f"INSERT OR REPLACE INTO agents ({_AGENT}) VALUES ({_VALUES})", row)


def agent(db: sqlite3.Connection, agent_id: str) -> AgentRow | None:
    row = db.execute(f"SELECT {_AGENT} FROM agents WHERE id = ?", (agent_id,)).fetchone()
    return None if row is None else AgentRow._make(row)


def agents(db: sqlite3.Connection) -> list[AgentRow]:
    return [AgentRow._make(row) for row in db.execute(f"SELECT {_AGENT} FROM agents ORDER BY id")]


def drop_agent(db: sqlite3.Connection, agent_id: str) -> None:
    db.execute("DELETE FROM agents WHERE id = ?", (agent_id,))


def has_live_executions(db: sqlite3.Connection, agent_id: str) -> bool:
    sql = f"SELECT 1 FROM executions WHERE agent_id = ? AND {LIVE} LIMIT 1"
    return db.execute(sql, (agent_id,)).fetchone() is not None


def set_metadata(db: sqlite3.Connection, agent_id: str, metadata: str) -> None:
    db.execute("UPDATE agents SET metadata = ? WHERE id = ?", (metadata, agent_id))


def policy_bundle(db: sqlite3.Connection, agent_id: str) -> str | None:
    """``None`` when the agent is not registered."""
    row = db.execute("SELECT policy_bundle FROM agents WHERE id = ?", (agent_id,)).fetchone()
    return None if row is None else row[0]


def set_policy_bundle(db: sqlite3.Connection, agent_id: str, bundle: str) -> bool:
    """Whether the agent is registered."""
    sql = "UPDATE agents SET policy_bundle = ? WHERE id = ?"
    return db.execute(sql, (bundle, agent_id)).rowcount > 0
