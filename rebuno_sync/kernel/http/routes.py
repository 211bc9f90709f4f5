"""The table of routes (protocol.md 2): what this kernel has, and how each is authenticated."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import unquote

from . import agent_routes as agents
from . import fork_routes as forks
from . import key_routes as keys
from . import operator_routes as operators
from . import policy_routes as policies
from . import resource_routes as resources
from . import stream_routes as streams
from .auth import Auth
from .call import Call
from .event_stream import EventStream
from .request import Response

__all__ = ["ROUTES", "Found", "Route", "find"]


class Route(NamedTuple):
    auth: Auth
    handle: Callable[[Call], Response | EventStream]


_EXECUTION = "/v0/executions/{id}"
_STEP = "/v0/executions/{id}/steps/{step}"

ROUTES: dict[str, dict[str, Route]] = {
    f"{_EXECUTION}/steps": {
        "POST": Route(Auth.HMAC, agents.submit),
        "GET": Route(Auth.EITHER, agents.list_steps),
    },
    f"{_STEP}/complete": {"POST": Route(Auth.HMAC, agents.complete_step)},
    f"{_EXECUTION}/batch": {"POST": Route(Auth.HMAC, agents.batch)},
    _EXECUTION: {"GET": Route(Auth.EITHER, operators.get_execution)},
    f"{_EXECUTION}/heartbeat": {"POST": Route(Auth.HMAC, agents.heartbeat)},
    "/v0/leases": {"POST": Route(Auth.HMAC, agents.renew_many)},
    f"{_EXECUTION}/complete": {"POST": Route(Auth.HMAC, agents.complete)},
    f"{_STEP}/fail": {"POST": Route(Auth.HMAC, agents.fail_step)},
    f"{_STEP}/attempt": {"POST": Route(Auth.HMAC, agents.attempt)},
    f"{_STEP}/stream": {"POST": Route(Auth.HMAC, streams.publish)},
    _STEP: {"GET": Route(Auth.EITHER, agents.get_step)},
    f"{_EXECUTION}/fail": {"POST": Route(Auth.HMAC, agents.fail)},
    f"{_EXECUTION}/suspend": {"POST": Route(Auth.HMAC, agents.suspend)},
    f"{_EXECUTION}/previous": {"GET": Route(Auth.EITHER, agents.previous)},
    f"{_EXECUTION}/release": {"POST": Route(Auth.HMAC, agents.release)},
    "/v0/executions": {
        "POST": Route(Auth.BEARER, operators.create),
        "GET": Route(Auth.BEARER, operators.list_executions),
    },
    f"{_EXECUTION}/events": {"GET": Route(Auth.BEARER, operators.events)},
    f"{_EXECUTION}/stream": {"GET": Route(Auth.BEARER, streams.listen)},
    f"{_EXECUTION}/cancel": {"POST": Route(Auth.BEARER, operators.cancel)},
    f"{_EXECUTION}/resources": {"POST": Route(Auth.HMAC, resources.register)},
    f"{_EXECUTION}/resources/checkpoints": {"POST": Route(Auth.HMAC, resources.checkpoint)},
    f"{_EXECUTION}/resources/{{key}}/binding": {"POST": Route(Auth.HMAC, resources.bind)},
    f"{_EXECUTION}/fork": {"POST": Route(Auth.BEARER, forks.fork)},
    f"{_EXECUTION}/fork-points": {"GET": Route(Auth.BEARER, forks.fork_points)},
    "/v0/agents": {
        "POST": Route(Auth.BEARER, operators.register_agent),
        "GET": Route(Auth.BEARER, operators.list_agents),
    },
    "/v0/agents/{id}": {
        "GET": Route(Auth.BEARER, operators.get_agent),
        "DELETE": Route(Auth.BEARER, operators.delete_agent),
    },
    "/v0/agents/{id}/metadata": {"PUT": Route(Auth.HMAC, agents.put_metadata)},
    "/v0/api-keys": {
        "POST": Route(Auth.BEARER, keys.create_key),
        "GET": Route(Auth.BEARER, keys.list_keys),
    },
    "/v0/api-keys/{id}": {"DELETE": Route(Auth.BEARER, keys.revoke_key)},
    "/v0/api-keys/{id}/rotate": {"POST": Route(Auth.BEARER, keys.rotate_key)},
    "/v0/policies/{agent}": {"POST": Route(Auth.BEARER, policies.set_policy)},
    "/v0/policies/{agent}/test": {"POST": Route(Auth.BEARER, policies.test_policy)},
    "/v0/approvals": {"GET": Route(Auth.BEARER, policies.list_approvals)},
    "/v0/approvals/{id}": {"GET": Route(Auth.BEARER, policies.get_approval)},
    "/v0/approvals/{id}/grant": {"POST": Route(Auth.BEARER, policies.grant_approval)},
    "/v0/approvals/{id}/deny": {"POST": Route(Auth.BEARER, policies.deny_approval)},
    "/v0/health": {"GET": Route(Auth.NONE, operators.health)},
    "/v0/ready": {"GET": Route(Auth.NONE, operators.ready)},
    "/v0/openapi.json": {"GET": Route(Auth.NONE, operators.openapi)},
    "/metrics": {"GET": Route(Auth.NONE, operators.metrics)},
}
"""By path; those that are asked most come first."""

_COMPILED = [
    (re.compile(re.sub(r"\{\w+\}", "([^/]+)", path)).fullmatch, path, methods)
    for path, methods in ROUTES.items()
]


class Found(NamedTuple):
    pattern: str
    methods: dict[str, Route]
    names: tuple[str, ...]
    """What the path names, unescaped."""


def find(path: str) -> Found | None:
    """The entry of the table that a path belongs to."""
    for matches, pattern, methods in _COMPILED:
        if match := matches(path):
            names = match.groups()
            return Found(pattern, methods, tuple(map(unquote, names)) if "%" in path else names)
    return None
