"""What travels between an execution and its kernel (protocol.md 3 and 7).

JSON values that belong to the user cross every internal seam as *text*, never as parsed objects:
the text is what is stored and hashed, and it is decoded once, by the annotation that asked for it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "LARGEST_BATCH",
    "Agent",
    "ApiKey",
    "Approval",
    "ApprovalStatus",
    "DecisionKind",
    "Delta",
    "DispatchStatus",
    "Event",
    "Execution",
    "ExecutionPage",
    "ExecutionStatus",
    "Idempotency",
    "LeaseKey",
    "PolicyReport",
    "PolicyResult",
    "Proposal",
    "Recorded",
    "Renewal",
    "Scope",
    "Step",
    "StepDecision",
    "StepKind",
    "StepStatus",
    "Usage",
    "check_idempotency",
]


LARGEST_BATCH = 100
"""Operations in one request of the extension ``batch``: a kernel refuses more."""


class ExecutionStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    BLOCKED = "blocked"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        return self in _TERMINAL_EXECUTION


class StepStatus(StrEnum):
    PROPOSED = "proposed"
    ALLOWED = "allowed"
    DENIED = "denied"
    AWAITING_APPROVAL = "awaiting_approval"
    EXECUTING = "executing"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        return self in _TERMINAL_STEP


_TERMINAL_EXECUTION = frozenset(
    {ExecutionStatus.COMPLETED, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED}
)
_TERMINAL_STEP = frozenset(
    {StepStatus.SUCCEEDED, StepStatus.FAILED, StepStatus.DENIED, StepStatus.CANCELLED}
)


class DispatchStatus(StrEnum):
    PENDING = "pending"
    IN_FLIGHT = "in_flight"
    FAILED = "failed"
    EXHAUSTED = "exhausted"


class ApprovalStatus(StrEnum):
    PENDING = "pending"
    GRANTED = "granted"
    DENIED = "denied"
    EXPIRED = "expired"


class StepKind(StrEnum):
    TOOL_CALL = "tool_call"
    LLM_CALL = "llm_call"
    LOCAL = "local"


class Idempotency(StrEnum):
    SAFE_TO_RETRY = "safe_to_retry"
    AT_MOST_ONCE = "at_most_once"


def check_idempotency(idempotency: str) -> None:
    """Raise ``ValueError`` for a word that is none of the two: a typo must not weaken a promise."""
    if idempotency not in tuple(Idempotency):
        raise ValueError(
            f"idempotency must be 'safe_to_retry' or 'at_most_once', not {idempotency!r}"
        )


class DecisionKind(StrEnum):
    """What a kernel answers to a submit or an outcome (protocol.md 7.5)."""

    PROCEED = "proceed"
    REPLAY = "replay"
    DENIED = "denied"
    BLOCKED = "blocked"
    EXECUTION_BLOCKED = "execution_blocked"
    RATE_LIMITED = "rate_limited"
    EXECUTION_TERMINAL = "execution_terminal"
    RECORDED = "recorded"


class Scope(StrEnum):
    """What an API key may be used for (protocol.md 1.3). Writing does not imply reading."""

    EXECUTIONS_READ = "executions:read"
    EXECUTIONS_WRITE = "executions:write"
    APPROVALS_READ = "approvals:read"
    APPROVALS_WRITE = "approvals:write"
    AGENTS_READ = "agents:read"
    AGENTS_WRITE = "agents:write"
    POLICIES_WRITE = "policies:write"
    API_KEYS_MANAGE = "api_keys:manage"


class Renewal(StrEnum):
    """What became of one lease's heartbeat."""

    ACCEPTED = "accepted"
    SUPERSEDED = "superseded"
    UNKNOWN = "unknown"
    """The beat or its answer was lost; it is sent again."""


class LeaseKey(NamedTuple):
    """The right to change an execution (protocol.md 5): it goes with every mutation."""

    execution_id: str
    dispatch_id: str
    attempt: int
    runner: str = ""
    """Who runs the attempt: a UUID that the process which took its webhook made for it. Empty where
    nobody asks (``runner`` in the service page)."""

    def is_attempt(self, other: LeaseKey) -> bool:
        """Whether it is the same attempt, whoever runs it."""
        return self[:3] == other[:3]


class Delta(NamedTuple):
    """A piece of what a running step receives (protocol.md 8.4)."""

    step_id: str
    seq: int
    """Counts from 0 for each step; a gap means that something was dropped."""
    data: str


class Proposal(NamedTuple):
    """An effect that is submitted before it runs (protocol.md 7.1)."""

    kind: str
    target: str
    args: str
    """JSON text."""
    idempotency: str = Idempotency.SAFE_TO_RETRY
    canonical: bool = False
    """Whether ``args`` is in canonical form already (protocol.md 6.1); saves a parse."""
    request_id: str = ""
    """A UUID under which a kernel that knows ``request-id`` recognises it (protocol.md 17)."""
    parent: str = ""
    """The id of the step in whose body it is called; not part of its identity."""


@dataclass(frozen=True, slots=True)
class StepDecision:
    """A kernel's answer to a submitted step (protocol.md 3.3).

    ``result_json`` and ``error_json`` are the recorded texts, ``None`` where nothing is recorded.
    """

    decision: str
    step_id: str = ""
    result_json: str | None = None
    error_json: str | None = None
    approval_id: str = ""
    reason: str = ""
    rule_id: str = ""
    attempt: int = 0
    """How many tries of the step have failed and were to be followed by another (protocol.md
    17, ``attempts``)."""
    retry_in: float = 0.0
    """Seconds that are left of the back-off before the next one."""

    @property
    def result(self) -> Any:
        return None if self.result_json is None else json.loads(self.result_json)

    @property
    def error(self) -> Any:
        return None if self.error_json is None else json.loads(self.error_json)


class Recorded(NamedTuple):
    """What an attempt needs to know of a step that was recorded before it."""

    step_id: str
    kind: str
    target: str
    args_hash: str
    settled: bool
    """Whether its status is terminal."""
    idempotency: str
    parent: str | None
    """The step in whose body it was called, empty when none; ``None`` where the kernel cannot
    tell."""
    started_at: int | None
    completed_at: int | None
    """Microseconds since 1970, on the kernel's clock."""


class _Wire(BaseModel):
    """Read leniently: a newer kernel may add keys."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Execution(_Wire):
    """One run of a handler, from its creation to its end (protocol.md 3.1)."""

    id: str
    agent_id: str
    status: ExecutionStatus
    created_at: datetime
    updated_at: datetime
    input: Any = None
    output: Any = None
    failure_reason: str = ""
    deadline_at: datetime | None = None
    idempotency_key: str | None = None
    input_hash: str = ""
    """Of an execution that was removed some time after its end: the hash of its input, which is
    gone, in canonical form."""


class ExecutionPage(_Wire):
    """Executions, newest first; ``next_cursor`` is ``None`` on the last page (protocol.md
    2.1.2)."""

    executions: list[Execution]
    next_cursor: str | None = None


class Usage(_Wire):
    """Tokens that a model call used (protocol.md 8.3)."""

    input_tokens: int = 0
    output_tokens: int = 0


class Step(_Wire):
    """One recorded effect (protocol.md 3.2)."""

    step_id: str
    execution_id: str
    kind: str
    target: str
    args_hash: str
    occurrence: int
    status: StepStatus
    idempotency: str
    args: Any = None
    result: Any = None
    error: Any = None
    usage: Usage | None = None
    """Of a model call whose response tells it."""
    started_at: datetime | None = None
    completed_at: datetime | None = None


class Agent(_Wire):
    """A registered agent (protocol.md 3.6). Its secret is never shown."""

    id: str
    webhook_url: str
    registered_at: datetime
    lease_timeout_seconds: float = 0
    """0 stands for the kernel's default."""
    policy_bundle: str = ""
    """YAML; empty where there is no policy: everything is allowed."""
    metadata: Any = None
    """What the agent published of itself: ``description``, ``input_schema``,
    ``output_schema``."""


class ApiKey(_Wire):
    """A key for the operators' routes (protocol.md 3.7)."""

    id: str
    name: str
    scopes: list[str]
    created_at: datetime
    revoked_at: datetime | None = None
    token: str = Field(default="", repr=False)
    """What its bearer sends. Only in the answer that made it: a kernel keeps its hash alone."""


class Approval(_Wire):
    """A person is asked whether a step may run (protocol.md 3.5, 12)."""

    id: str
    step_id: str
    execution_id: str
    status: ApprovalStatus
    timeout_at: datetime
    created_at: datetime
    approvers: list[str] | None = None
    """Who may decide; ``None`` for anybody."""
    message: str = ""
    decided_by: str = ""
    rationale: str = ""
    decided_at: datetime | None = None


class PolicyResult(_Wire):
    """What a policy would say of one call (protocol.md 11.10)."""

    target: str
    kind: str = StepKind.TOOL_CALL
    args: Any = None
    name: str = ""
    agent_id: str = ""
    expect: str = ""
    expect_rule: str = ""
    decision: str
    rule_id: str = ""
    reason: str = ""
    passed: bool = Field(alias="pass")
    failure: str = ""
    """Empty when it is as expected."""
    execution_id: str = ""
    step_id: str = ""
    was_rule: str = ""
    """The rule that decided when the call was really made."""


class PolicyReport(_Wire):
    """What came of a policy test."""

    results: list[PolicyResult]
    failed: int
    unexercised_rules: list[str] = []


class Event(_Wire):
    """One entry of an execution's log (protocol.md 3.4, 10)."""

    execution_id: str
    event_seq: int
    type: str
    payload: dict[str, Any]
    occurred_at: datetime
