"""What there is to know, and which release of the async SDK knows it.

``tests/peers/test_surface.py`` compares the table with what each release has, and with what the
tests here show.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import pytest

from .environments import OLDEST, RELEASES, Release

__all__ = ["FEATURES", "SHOWN", "Feature", "shows"]


@dataclass(frozen=True)
class Feature:
    """``names``: patterns of what a release has for it, none where nothing has its name.

    ``unknown``: why a release does not know it.
    """

    names: tuple[str, ...] = ()
    unknown: dict[Release, str] | None = None

    def known_to(self, release: Release) -> bool:
        return release not in (self.unknown or {})

    def has(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.names)


def _newest_only(why: str) -> dict[Release, str]:
    return {OLDEST: why}


def _no_release(why: str) -> dict[Release, str]:
    return dict.fromkeys(RELEASES, why)


FEATURES = {
    "agents": Feature(
        (
            *("Agent", "Agent(agent_id)", "Agent(secret=)", "Agent(base_url=)"),
            *("Agent(webhook_path=)", "Agent(kernel_timeout=)", "Agent.bind*", "Agent.run*"),
            *("Agent.close", "Agent.join", "execution", "types", "RebunoError", "APIError"),
        )
    ),
    "tools and steps": Feature(
        (
            *("tool", "tool(tool_id=)", "tool(idempotency=)", "ToolError"),
            *("step", "step(name)", "step(fn)", "step(args=)", "step(idempotency=)"),
            *("wrap_tool", "wrap_tool(name)", "wrap_tool(invoke)", "wrap_tool(description=)"),
            *("wrap_tool(args_schema=)", "wrap_tool(idempotency=)", "wrap_tool(t*=)"),
        )
    ),
    "MCP tools": Feature(("mcp.wrap_mcp_tool", "mcp.wrap_mcp_tools")),
    "model calls": Feature(("http_client", "RebunoTransport", "raise_for_refusal")),
    "live pieces of model calls": Feature(),
    "denied effects": Feature(("PolicyError", "failure_reason")),
    "rate limits": Feature(("RateLimited",)),
    "waits for a rate": Feature(),
    "token budgets": Feature(),
    "approvals": Feature(
        (
            *("Blocked", "Client.list_approvals*", "Client.get_approval*"),
            *("Client.grant_approval", "Client.grant_approval(approval_id)"),
            *("Client.deny_approval", "Client.deny_approval(approval_id)"),
            "Client.*_approval(rationale=)",
            "Client.*_approval(decided_by)",
        )
    ),
    "decisions without a name": Feature(
        ("Client.*_approval(decided_by=)",), _newest_only("its client requires decided_by")
    ),
    "cancelled attempts": Feature(("Terminated", "LeaseSuperseded", "Client.cancel*")),
    "executions": Feature(
        (
            *("Client", "Client(base_url=)", "Client(timeout=)", "Client.close", "NetworkError"),
            *("Client.create", "Client.create(agent_id)", "Client.create(input=)"),
            *("Client.get", "Client.get(*)", "Client.events*", "Client.list_steps*"),
            *("Client.get_step*", "ConflictError", "NotFoundError", "ValidationError"),
        )
    ),
    "API keys": Feature(("Client(api_key=)", "UnauthorizedError", "ForbiddenError")),
    "idempotency keys": Feature(
        ("Client.create(idempotency_key=)",), _newest_only("came with 0.26")
    ),
    "on behalf of": Feature(("Client.create(on_behalf_of=)",), _newest_only("came with 0.29")),
    "agent metadata": Feature(
        ("Agent(description=)", "Agent(output_schema=)", "Agent.publish_metadata"),
        _newest_only("came with 0.29"),
    ),
    "sessions": Feature(("Client.create(session=)",), _newest_only("came with 0.24")),
    "previous states": Feature(
        ("previous", "Result", "Client.create(parent_execution_id=)"),
        _newest_only("came with 0.24"),
    ),
    "forks": Feature(("Client.fork*",), _newest_only("came with 0.24")),
    "resources": Feature(
        (
            *("resource", "resource(*)", "CheckpointPolicy", "CheckpointUnavailable"),
            *("tool(resources=)", "step(resources=)", "wrap_tool(resources=)"),
        ),
        _newest_only("came with 0.24"),
    ),
    "subagents": Feature(
        ("subagent", "subagent(*)", "Client.create(spawned_by=)"), _newest_only("came with 0.26")
    ),
    "executions of our agents": Feature(),
    "being a subagent": Feature(),
    "fork points": Feature(unknown=_no_release("its client does not ask for them")),
    "reading live streams": Feature(unknown=_no_release("its client opens no stream")),
    "setting and trying policies": Feature(unknown=_no_release("its client has no method for it")),
    "making API keys": Feature(unknown=_no_release("its client has no method for it")),
    "listing executions": Feature(unknown=_no_release("its client has no method for it")),
    "registering agents": Feature(unknown=_no_release("its client has no method for it")),
    "durable sleep": Feature(
        unknown=_no_release("its agents wait under their lease; the extension wake is ours")
    ),
}

SHOWN: dict[str, list[str]] = {}
"""The tests that show a feature."""

Test = TypeVar("Test", bound=Callable[..., Any])


def shows(*features: str) -> Callable[[Test], Test]:
    """Run a test with each release that knows all of these."""
    wanted = [FEATURES[name] for name in features]
    knowing = [one for one in RELEASES if all(it.known_to(one) for it in wanted)]
    assert knowing, f"no release knows {features}"

    def mark(test: Test) -> Test:
        for name in features:
            SHOWN.setdefault(name, []).append(test.__name__)
        marked: Test = pytest.mark.parametrize("release", knowing, ids=str, indirect=True)(test)
        return marked

    return mark
