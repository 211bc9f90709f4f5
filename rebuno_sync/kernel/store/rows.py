"""What the tables give back."""

from __future__ import annotations

from typing import NamedTuple

from ...types import ApprovalStatus, DispatchStatus, ExecutionStatus, StepStatus

__all__ = [
    "REMOTE",
    "AgentRow",
    "ApprovalRow",
    "DispatchRow",
    "ExecutionRow",
    "KeyRow",
    "RemovedRow",
    "Standing",
    "StepRow",
]

REMOTE = "remote"
"""The owner of a lease that was delivered by webhook: nobody can tell whether it lives, only its
lease decides."""


class AgentRow(NamedTuple):
    id: str
    webhook_url: str
    secret: str
    accepts_body_form: int
    lease_seconds: float
    metadata: str | None
    registered_at: int
    policy_bundle: str = ""

    def __repr__(self) -> str:
        return f"AgentRow(id={self.id!r}, webhook_url={self.webhook_url!r})"


class KeyRow(NamedTuple):
    id: str
    name: str
    scopes: str
    hash: bytes
    created_at: int
    revoked_at: int | None

    def __repr__(self) -> str:
        return f"KeyRow(id={self.id!r}, name={self.name!r})"


class ExecutionRow(NamedTuple):
    n: int
    id: str
    agent_id: str
    status: ExecutionStatus
    input: str
    output: str | None
    failure_reason: str
    idempotency_key: str | None
    created_at: int
    updated_at: int
    deadline_at: int | None
    deadline_due: float | None
    max_attempts: int
    session: str | None
    parent: str | None
    spawner: str | None
    spawner_step: str | None
    on_behalf_of: str | None
    forked_from: str | None = None
    fork_seq: int | None = None


class RemovedRow(ExecutionRow):
    """What is left of an execution that retention has removed. Its number is 0, which no step or
    event has."""

    input_hash: str = ""
    """Of its input, which is gone, in canonical form."""


class Standing(NamedTuple):
    """Where an execution and one dispatch of it stand: all that a fence looks at, in one read."""

    execution: int
    status: ExecutionStatus
    deadline_due: float | None
    last_seq: int
    dispatch: int | None
    dispatch_status: DispatchStatus | None
    attempt: int
    strikes: int
    lease_seconds: float
    renewed: float
    agent_id: str
    owner: str | None
    wants_notice: int
    runner: str | None
    """Who has asked first under the newest attempt: ``""`` for one without a name, ``None`` while
    nobody has."""


class StepRow(NamedTuple):
    n: int
    step_id: str
    kind: str
    target: str
    args_hash: str
    occurrence: int
    status: StepStatus
    idempotency: str
    args: str
    result: str | None
    error: str | None
    rule_id: str
    parent: str
    started_at: int | None
    started_due: float | None
    completed_at: int | None
    tries: int = 0
    retry_due: float | None = None
    usage: str | None = None


class DispatchRow(NamedTuple):
    n: int
    id: str
    status: DispatchStatus
    attempt: int
    strikes: int
    max_attempts: int
    due: float
    owner: str | None
    lease_seconds: float
    renewed: float


class ApprovalRow(NamedTuple):
    n: int
    id: str
    execution: int
    execution_id: str
    step: int
    step_id: str
    status: ApprovalStatus
    approvers: str
    """A JSON array of names."""
    message: str
    decided_by: str
    rationale: str
    created_at: int
    decided_at: int | None
    timeout_at: int
    timeout_due: float
    agent_id: str
    kind: str
    target: str
    args: str
