"""What is said of a new step: by its agent's policy, by rate limits, by budgets (protocol.md 7.2,
11.7, 11.8). Functions of a transaction."""

from __future__ import annotations

import logging

from ..errors import api_error
from ..types import Idempotency, Proposal
from .moment import Moment
from .policy import (
    BUNDLE_ERROR,
    INDETERMINATE_RETRY,
    PERMISSIVE,
    UNKNOWN_AGENT,
    Action,
    BundleInvalid,
    Policy,
    RateLimit,
    Verdict,
    compiled,
)
from .store import Connection, counters, forking, kinship, registry, tables
from .store.rows import Standing

__all__ = ["parking_seconds", "rule", "take_token", "usable", "within_budget"]

_log = logging.getLogger(__name__)

_BUDGET_EXCEEDED = "execution_token_budget_exceeded"

_NEARLY = 1e-9
"""What a token may lack: a wait of just the right length fills it up but for rounding."""


def usable(bundle: str) -> Policy:
    """The policy of a bundle. Raises ``BundleInvalid``, or an ``APIError`` where the extra is
    missing: that is no fault of the bundle, so nothing is decided."""
    try:
        return compiled(bundle)
    except ImportError as error:
        raise api_error(
            "internal_error",
            f"this kernel cannot read policies: {error}. Install rebuno-sync[kernel]",
            500,
        ) from error


def rule(db: Connection, at: Standing, proposal: Proposal, args_hash: str) -> Verdict:
    """What policy says of a call that was never met before."""
    if proposal.idempotency == Idempotency.AT_MOST_ONCE and tables.indeterminate_twin(
        db, at.execution, proposal.kind, proposal.target, args_hash
    ):
        return INDETERMINATE_RETRY
    bundle = registry.policy_bundle(db, at.agent_id)
    bundle = forking.own_policy(db, at.execution) or bundle
    if bundle is None:
        return UNKNOWN_AGENT
    if not bundle:
        return PERMISSIVE
    try:
        policy = usable(bundle)
    except BundleInvalid as error:
        _log.error(
            "agent %s: its policy cannot be used, so nothing is allowed: %s", at.agent_id, error
        )
        return BUNDLE_ERROR
    return policy.evaluate(at.agent_id, proposal.kind, proposal.target, proposal.args or "null")


# -- rate limits


def take_token(db: Connection, at: Standing, verdict: Verdict, now: Moment) -> float:
    """Count the call against its rule's limit: 0 when it is within it, else the seconds until
    there is a token again."""
    limit = verdict.rate_limit
    if limit is None or limit.max_calls <= 0 or limit.window_seconds <= 0:
        return 0.0
    key = f"{verdict.rule_id}:{_scope(db, at, limit)}"
    rate = limit.max_calls / limit.window_seconds
    tokens = float(limit.max_calls)
    kept = counters.bucket(db, key)
    if kept is not None:
        elapsed = max(now.boottime - kept[1], 0.0)
        tokens = min(tokens, kept[0] + rate * elapsed)
    taken = tokens >= 1 - _NEARLY
    left = max(tokens - taken, 0.0)
    counters.put_bucket(db, key, left, now.wall, now.boottime)
    return 0.0 if taken else (1 - tokens) / rate


def _scope(db: Connection, at: Standing, limit: RateLimit) -> str:
    if limit.per_what == "global":
        return "global"
    if limit.per_what == "agent":
        return f"agent:{at.agent_id}"
    if limit.per_what == "session" and (session := kinship.session_of(db, at.execution)):
        return f"session:{session}"
    return f"exec:{tables.execution_id(db, at.execution)}"


def parking_seconds(
    db: Connection, at: Standing, limit: RateLimit | None, wait: float, now: Moment
) -> float | None:
    """How long the execution is parked until there is a token; ``None``: the call is refused.

    It is parked once in its life (protocol.md 7.4).
    """
    longest = 0.0 if limit is None else limit.max_wait_seconds
    if longest <= 0 or wait > longest or counters.was_rate_limited(db, at.execution):
        return None
    return min(wait + now.random() * wait / 2, longest)


# -- budgets


def within_budget(db: Connection, at: Standing, verdict: Verdict) -> Verdict:
    """The verdict, or what its budget makes of it once it is used up."""
    budget = verdict.budget
    if budget is None or budget.max_tokens <= 0 or verdict.action is not Action.ALLOW:
        return verdict
    if counters.spent_tokens(db, at.execution, budget.scope) < budget.max_tokens:
        return verdict
    return verdict._replace(action=budget.on_exceed, reason=_BUDGET_EXCEEDED)
