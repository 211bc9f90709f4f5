"""What a policy answers, and the rules that are not in any bundle (protocol.md 11.4)."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

__all__ = [
    "BUNDLE_ERROR",
    "INDETERMINATE_RETRY",
    "PERMISSIVE",
    "UNKNOWN_AGENT",
    "Action",
    "Approvers",
    "Budget",
    "RateLimit",
    "Verdict",
]


class Action(StrEnum):
    ALLOW = "allow"
    DENY = "deny"
    REQUIRE_APPROVAL = "require_approval"


class Approvers(NamedTuple):
    """Who may decide, and for how long they are asked."""

    names: tuple[str, ...] = ()
    """Empty: anybody."""
    timeout_seconds: float = 0.0
    """0 stands for the kernel's default."""
    message: str = ""


class RateLimit(NamedTuple):
    """A token bucket (protocol.md 11.7)."""

    max_calls: int
    window_seconds: float
    per_what: str = "execution"
    max_wait_seconds: float = 0.0


class Budget(NamedTuple):
    """How many tokens model calls may use up (protocol.md 11.8)."""

    max_tokens: int
    scope: str = "execution"
    on_exceed: Action = Action.DENY


class Verdict(NamedTuple):
    action: Action
    rule_id: str
    reason: str = ""
    approvers: Approvers = Approvers()
    rate_limit: RateLimit | None = None
    budget: Budget | None = None
    policy_hash: str = ""
    """Of the bundle's text; empty for what no bundle says."""


PERMISSIVE = Verdict(Action.ALLOW, "permissive")
"""Without a bundle everything is allowed."""

INDETERMINATE_RETRY = Verdict(
    Action.DENY, "__indeterminate_retry", "prior attempt outcome unknown; retry refused"
)
"""A second at_most_once call whose twin ended with an unknown outcome (protocol.md 7.2, 11)."""

BUNDLE_ERROR = Verdict(Action.DENY, "bundle-error", "policy_bundle_invalid")
"""A bundle that is stored but cannot be read denies everything."""

UNKNOWN_AGENT = Verdict(Action.DENY, "bundle-error", "agent_lookup_failed")
"""The agent has been deleted, and its policy with it."""
