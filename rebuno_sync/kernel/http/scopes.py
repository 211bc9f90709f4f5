"""Which scopes an API key needs for a route (protocol.md 2)."""

from __future__ import annotations

from ...types import Scope

__all__ = ["SCOPES", "scopes_of"]

_EXECUTION = "/v0/executions/{id}"
_READ, _WRITE = Scope.EXECUTIONS_READ, Scope.EXECUTIONS_WRITE

SCOPES: dict[str, tuple[Scope, ...]] = {
    "POST /v0/executions": (_WRITE,),
    "GET /v0/executions": (_READ,),
    f"GET {_EXECUTION}": (_READ,),
    f"GET {_EXECUTION}/events": (_READ,),
    f"GET {_EXECUTION}/stream": (_READ,),
    f"GET {_EXECUTION}/steps": (_READ,),
    f"GET {_EXECUTION}/steps/{{step}}": (_READ,),
    f"POST {_EXECUTION}/cancel": (_WRITE,),
    f"POST {_EXECUTION}/fork": (_WRITE,),
    f"GET {_EXECUTION}/fork-points": (_READ,),
    f"GET {_EXECUTION}/previous": (_READ,),
    "POST /v0/agents": (Scope.AGENTS_WRITE,),
    "GET /v0/agents": (Scope.AGENTS_READ,),
    "GET /v0/agents/{id}": (Scope.AGENTS_READ,),
    "DELETE /v0/agents/{id}": (Scope.AGENTS_WRITE,),
    "POST /v0/policies/{agent}": (Scope.POLICIES_WRITE,),
    "POST /v0/policies/{agent}/test": (Scope.POLICIES_WRITE, _READ),
    "GET /v0/approvals": (Scope.APPROVALS_READ,),
    "GET /v0/approvals/{id}": (Scope.APPROVALS_READ,),
    "POST /v0/approvals/{id}/grant": (Scope.APPROVALS_WRITE,),
    "POST /v0/approvals/{id}/deny": (Scope.APPROVALS_WRITE,),
    "POST /v0/api-keys": (Scope.API_KEYS_MANAGE,),
    "GET /v0/api-keys": (Scope.API_KEYS_MANAGE,),
    "DELETE /v0/api-keys/{id}": (Scope.API_KEYS_MANAGE,),
    "POST /v0/api-keys/{id}/rotate": (Scope.API_KEYS_MANAGE,),
}
"""By method and path of the table of routes."""

_ALL = frozenset(Scope)


def scopes_of(pattern: str, method: str) -> frozenset[Scope]:
    """All of them, for a route that names none: what was forgotten is not open."""
    scopes = SCOPES.get(f"{method} {pattern}")
    return _ALL if scopes is None else frozenset(scopes)
