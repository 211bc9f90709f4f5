"""Submits: of new calls, and of one that may have been made (protocol.md 7.2, 7.3)."""

from __future__ import annotations

from .beginnings import call
from .cells import Column, Rule, rule

__all__ = ["STARTED", "SUBMITS"]


STARTED = "step.proposed step.allowed step.executing"
_ASKED = "step.proposed step.awaiting_approval approval.requested execution.blocked"

UNDER_LEASE = (
    rule("unknown", "!not_found", "7.2 (4)"),
    rule("foreign", "!forbidden", "7.2 (4)"),
    rule("ended", "execution_terminal", "7.2 (5)"),
    rule("unheld", "!lease_superseded", "7.2 (6)"),
)

AGAIN = (
    *UNDER_LEASE,
    rule("step-none", "proceed", "7.2 (16)", STARTED),
    rule("step-succeeded", "replay", "7.3"),
    rule("step-failed", "replay", "7.3"),
    rule("step-denied", "denied", "7.3"),
    rule("step-allowed tried", "proceed", "17 attempts"),
    rule("step-allowed", "proceed", "7.3", "step.executing"),
)


def _submit(name: str, target: str, *rules: Rule, resources: tuple[str, ...] = ()) -> Column:
    body = {"kind": "tool_call", "target": target, "args": None, "resources": list(resources)}
    proposal = call(target)._replace(resources=resources)
    return Column(
        name,
        (*UNDER_LEASE, *rules),
        "POST /v0/executions/{id}/steps",
        body,
        port="agent.submit",
        direct=lambda w, s: w.kernel.agent.submit(s.lease, proposal),
    )


def _submit_again(name: str, *rules: Rule, strict: bool) -> Column:
    return Column(
        name,
        (*AGAIN, *rules),
        "POST /v0/executions/{id}/steps",
        lambda s: {
            "kind": "tool_call",
            "target": s.target,
            "args": None,
            "idempotency": call("", strict=strict).idempotency,
        },
        port="agent.submit",
        direct=lambda w, s: w.kernel.agent.submit(s.lease, call(s.target, strict=strict)),
        about_step=True,
    )


SUBMITS = (
    _submit("submit new", "new", rule("", "proceed", "7.2 (16)", STARTED)),
    _submit(
        "submit denied", "no-never", rule("", "denied", "7.2 (16)", "step.proposed step.denied")
    ),
    _submit("submit asking", "ask-new", rule("", "blocked", "7.2 (16)", _ASKED, lease="newest")),
    _submit("submit limited", "never", rule("", "rate_limited", "7.4", "step.rate_limited")),
    _submit(
        "submit parking",
        "later",
        rule("", "blocked", "7.4", "step.rate_limited dispatch.queued", lease="newest"),
    ),
    _submit(
        "submit changing nothing known",
        "new",
        rule("", "!validation_error", "7.2 (10)"),
        resources=("nothing",),
    ),
    _submit_again("submit again", rule("step-executing", "proceed", "7.3"), strict=False),
    _submit_again(
        "submit again strictly",
        rule("step-executing", "replay", "7.3", "step.failed"),
        strict=True,
    ),
)
