"""All tables of the matrix, by what they are about."""

from __future__ import annotations

from .cells import Table
from .executions import EXECUTIONS
from .others import AGENTS, API_KEYS, APPROVALS, KEYS, RESOURCES, SESSIONS

__all__ = ["TABLES"]

TABLES: dict[str, Table] = {
    "execution": EXECUTIONS,
    "approval": APPROVALS,
    "api_key": API_KEYS,
    "session": SESSIONS,
    "key": KEYS,
    "resource": RESOURCES,
    "agent": AGENTS,
}
