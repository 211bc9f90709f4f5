"""What travels about API keys (protocol.md 1.3, 3.7); ``types`` has it all."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from .wire import Wire

__all__ = ["ApiKey", "Scope"]


class Scope(StrEnum):
    """What an API key may be used for (protocol.md 1.3). Writing does not imply reading."""

    EXECUTIONS_READ = "executions:read"
    EXECUTIONS_WRITE = "executions:write"
    APPROVALS_READ = "approvals:read"
    APPROVALS_WRITE = "approvals:write"
    AGENTS_READ = "agents:read"
    AGENTS_WRITE = "agents:write"
    POLICIES_WRITE = "policies:write"
    API_KEYS_MANAGE = "api_keys:manage"


class ApiKey(Wire):
    """A key for the operators' routes (protocol.md 3.7)."""

    id: str
    name: str
    scopes: list[str]
    created_at: datetime
    revoked_at: datetime | None = None
    token: str = Field(default="", repr=False)
    """What its bearer sends. Only in the answer that made it: a kernel keeps its hash alone."""
