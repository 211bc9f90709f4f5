"""What agents do in scenarios, in a word each."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from rebuno_sync.errors import APIError
from rebuno_sync.types import Approval, Execution, Idempotency, LeaseKey, Proposal, StepDecision

from .deployments import AGENT, Deployment
from .scenarios import bundle

__all__ = [
    "asks",
    "attempt",
    "call",
    "code_of",
    "create",
    "kinds",
    "log",
    "next_attempt",
    "once",
    "perform",
    "rules",
    "start",
]


def call(target: str = "search", args: object = None, *, kind: str = "tool_call") -> Proposal:
    """An effect that may run again."""
    return Proposal(kind, target, json.dumps(args))


def once(target: str = "charge", args: object = None) -> Proposal:
    """An effect that must not run twice."""
    return Proposal("tool_call", target, json.dumps(args), Idempotency.AT_MOST_ONCE)


def create(on: Deployment, input: object = None) -> Execution:
    return on.operator.create(AGENT, input)


def attempt(on: Deployment, execution_id: str) -> LeaseKey:
    """The next attempt of an execution, which has to be due."""
    lease = on.lease(execution_id)
    assert lease is not None, "no attempt is due"
    return lease


def start(on: Deployment, input: object = None) -> LeaseKey:
    """A new execution and its first attempt."""
    return attempt(on, create(on, input).id)


def next_attempt(on: Deployment, lease: LeaseKey) -> LeaseKey:
    """The attempt is never heard of again; the next one."""
    on.expire(lease)
    return attempt(on, lease.execution_id)


def perform(
    on: Deployment, lease: LeaseKey, proposal: Proposal, result: object = None
) -> StepDecision:
    """Submit an effect that proceeds and record its result."""
    decision = on.agent.submit(lease, proposal)
    assert decision.decision == "proceed"
    recorded = on.agent.complete_step(lease, decision.step_id, json.dumps(result))
    assert recorded == StepDecision("recorded")
    return decision


def rules(on: Deployment, target: str, then: str, *, when: str = "") -> None:
    """Have the agent's policy say ``then`` of a target, and allow everything else."""
    on.operator.set_policy(AGENT, bundle(target, then, on.generation, when=when))


def asks(on: Deployment, proposal: Proposal, *, terms: str = "{}") -> tuple[LeaseKey, Approval]:
    """An execution that waits for an approval of the call, and the approval."""
    rules(on, proposal.target, f"{{decision: require_approval, approval_config: {terms}}}")
    lease = start(on)
    decision = on.agent.submit(lease, proposal)
    assert (decision.decision, bool(decision.step_id)) == ("blocked", True)
    return lease, on.operator.get_approval(decision.approval_id)


def code_of(refused: Callable[[], object]) -> str:
    """The error code with which a kernel refuses; empty when it does not."""
    try:
        refused()
    except APIError as error:
        return error.code
    return ""


def log(on: Deployment, execution_id: str) -> list[tuple[str, dict[str, Any]]]:
    """Type and payload of each event."""
    return [(event.type, event.payload) for event in on.operator.events(execution_id)]


def kinds(on: Deployment, execution_id: str) -> list[str]:
    """The types of the events, in order."""
    return [kind for kind, _ in log(on, execution_id)]
