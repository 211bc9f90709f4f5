"""What operators and agents do in these tests, in a word each."""

from __future__ import annotations

import json

from rebuno_sync.kernel import Kernel
from rebuno_sync.types import Idempotency, LeaseKey, Proposal

__all__ = ["AGENT", "ask_for", "attempt", "call", "kinds", "once", "perform", "start"]

AGENT = "agent"


def call(target: str = "search", args: object = None) -> Proposal:
    """An effect that may run again."""
    return Proposal("tool_call", target, json.dumps(args))


def once(target: str = "charge", args: object = None) -> Proposal:
    """An effect that must not run twice."""
    return call(target, args)._replace(idempotency=Idempotency.AT_MOST_ONCE)


def attempt(kernel: Kernel, execution_id: str) -> LeaseKey:
    """The next attempt of an execution, which has to be due."""
    claim = kernel.claim(execution_id)
    assert claim is not None, "no attempt is due"
    return claim.lease


def start(kernel: Kernel) -> LeaseKey:
    """A new execution and its first attempt."""
    return attempt(kernel, kernel.create(AGENT).id)


def perform(kernel: Kernel, lease: LeaseKey, proposal: Proposal, result: object = None) -> str:
    """Submit an effect that proceeds and record its result; its step id."""
    decision = kernel.agent.submit(lease, proposal)
    assert decision.decision == "proceed"
    recorded = kernel.agent.complete_step(lease, decision.step_id, json.dumps(result))
    assert recorded.decision == "recorded"
    return decision.step_id


def ask_for(kernel: Kernel, target: str) -> None:
    """Have a person asked for calls of the target; all else is allowed."""
    rule = f"{{id: ask, when: {{target: {target}}}, then: {{decision: require_approval}}}}"
    kernel.set_policy(AGENT, f"default_action: allow\nrules: [{rule}]")


def kinds(kernel: Kernel, execution_id: str) -> list[str]:
    """The types of the events, in order."""
    return [event.type for event in kernel.events(execution_id, limit=1000)]
