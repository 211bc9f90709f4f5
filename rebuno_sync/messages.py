"""What agents say to a kernel and hear from it, as JSON (protocol.md 3, 7.1, 17)."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from .replies import understood
from .types import LeaseKey, Proposal, Recorded, Spawn, Step, StepDecision, Touched

__all__ = [
    "EXTENSIONS",
    "completion_body",
    "creation_body",
    "decision_of",
    "extensions_in",
    "lease_entry",
    "outcome_body",
    "recorded_of",
    "submit_body",
    "submit_operation",
]

EXTENSIONS = (
    *("request-id", "batch", "leases", "release", "wake", "attempts", "cancel-notice", "runner"),
    "besides",
)
"""The extensions that this agent understands (protocol.md 17, and the service page)."""


def extensions_in(named: str) -> frozenset[str]:
    """Those in a header ``Rebuno-Extensions`` that this agent understands."""
    return frozenset(EXTENSIONS) & {name.strip() for name in named.split(",")}


def lease_entry(lease: LeaseKey) -> dict[str, str | int]:
    """One of the many leases that are renewed together."""
    fields: dict[str, str | int] = {
        "execution_id": lease.execution_id,
        "dispatch_id": lease.dispatch_id,
        "dispatch_attempt": lease.attempt,
    }
    return {**fields, "runner": lease.runner} if lease.runner else fields


def submit_body(proposal: Proposal) -> str:
    """What a submit says. The arguments are spliced in as they are: parsing and writing 30 KB
    again costs more than the rest."""
    return "{" + _submit_members(proposal) + "}"


def submit_operation(proposal: Proposal) -> str:
    """The same as one operation of a batch."""
    return '{"op":"submit",' + _submit_members(proposal) + "}"


def _submit_members(proposal: Proposal) -> str:
    # Older kernels know no resources, and refuse what they do not know.
    changed = f',"resources":{json.dumps(proposal.resources)}' if proposal.resources else ""
    return (
        f'"kind":{json.dumps(proposal.kind)},"target":{json.dumps(proposal.target)},'
        f'"args":{proposal.args or "null"},"idempotency":"{proposal.idempotency}"{changed}'
    )


def outcome_body(member: str, text: str) -> str:
    """What an outcome says: one member, whose JSON text is given."""
    return f'{{"{member}":{text}}}'


def completion_body(output: str, state: str | None) -> str:
    """What a completion says; a state only where there is one, which older kernels do not know."""
    more = "" if state is None else f',"state":{state}'
    return f'{{"output":{output}{more}}}'


def creation_body(spawner: str, spawn: Spawn) -> str:
    """What the creation of a subagent says; ``spawner`` is the execution that it is created in."""
    session = f',"session":{json.dumps(spawn.session)}' if spawn.session else ""
    spawned_by = json.dumps({"execution_id": spawner, "step_id": spawn.step_id})
    return (
        f'{{"agent_id":{json.dumps(spawn.agent_id)},"input":{spawn.input_json},'
        f'"spawned_by":{spawned_by}{session}}}'
    )


def decision_of(answer: Any) -> StepDecision:
    """A decision (protocol.md 3.3); raises ``NetworkError`` for what is none."""
    return understood("a decision", lambda: _decision(answer))


def _decision(answer: Any) -> StepDecision:
    return StepDecision(
        decision=answer["decision"],
        step_id=answer.get("step_id", ""),
        result_json=_text(answer, "result"),
        error_json=_text(answer, "error"),
        approval_id=answer.get("approval_id", ""),
        reason=answer.get("reason", ""),
        rule_id=answer.get("rule_id", ""),
        attempt=int(answer.get("attempt") or 0),
        retry_in=float(answer.get("retry_in") or 0.0),
        resources=tuple(map(_touched, answer.get("resources") or ())),
    )


def _touched(it: dict[str, Any]) -> Touched:
    return Touched(it["key"], it["generation"], bool(it.get("due")))


def _text(answer: dict[str, Any], key: str) -> str | None:
    return json.dumps(answer[key], separators=(",", ":")) if key in answer else None


def recorded_of(step: Step) -> Recorded:
    """A step as the kernel lists it, for one that is met again."""
    return Recorded(
        step.step_id,
        step.kind,
        step.target,
        step.args_hash,
        step.status.terminal,
        step.idempotency,
        None,
        _microseconds(step.started_at),
        _microseconds(step.completed_at),
    )


def _microseconds(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 1_000_000)
