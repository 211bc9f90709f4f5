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

from .key_types import ApiKey, Scope
from .policy_types import PolicyReport, PolicyResult
from .resource_types import (
    Capture,
    CaptureFailure,
    ForkPoints,
    Registration,
    ResourceCheckpoint,
    ResourceView,
    Touched,
)
from .wire import Wire as _Wire

__all__ = [
    "LARGEST_BATCH",
    "Agent",
    "ApiKey",
    "Approval",
    "ApprovalStatus",
    "Capture",
    "CaptureFailure",
    "DecisionKind",
    "Delta",
    "DispatchStatus",
    "Event",
    "Execution",
    "ExecutionPage",
    "ExecutionStatus",
    "ForkPoints",
    "Idempotency",
    "LeaseKey",
    "PolicyReport",
    "PolicyResult",
    "Proposal",
    "Recorded",
    "Registration",
    "Renewal",
    "ResourceCheckpoint",
    "ResourceView",
    "Scope",
    "Step",
    "StepDecision",
    "StepKind",
    "StepStatus",
    "Touched",
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


class Wake(NamedTuple):
    """When an execution that sleeps is to go on (protocol.md 17, ``wake``)."""

    step_id: str
    """The sleep."""
    seconds: float
    """From now."""
    besides: tuple[str, ...] = ()
    """Steps that are waited for as well. Where one has ended by now, nothing is to be parked."""


class Spawn(NamedTuple):
    """A subagent that a step is to wait for (protocol.md 9.7)."""

    agent_id: str
    input_json: str
    step_id: str
    session: str = ""


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
    resources: tuple[str, ...] = ()
    """The keys of the resources that it may change; not part of its identity."""


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
    resources: tuple[Touched, ...] = ()
    """Where it proceeds: the resources that it may change."""

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
    session: str | None = None
    parent_execution_id: str | None = None
    """The execution whose state it goes on from."""
    spawned_by: dict[str, str] | None = None
    """Of a subagent: ``execution_id`` and ``step_id`` of the step that it stands for."""
    on_behalf_of: str | None = None
    forked_from: str | None = None
    """Of a fork: the execution that it is one of."""
    fork_seq: int = 0
    """The event of that execution at which it was forked; 0 of what is no fork."""
    restoration: dict[str, Any] | None = None
    """Where ``fork`` answers: what each resource is restored from (protocol.md 9.5)."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a handler returns to leave a state behind: ``previous()`` gives it to the next
    execution. Without a state, that gets the output.

    ``output``: any JSON value, the execution's output. ``state``: any JSON value; ``None`` for
    none.
    """

    output: Any = None
    state: Any = None


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
    agent_id: str = ""
    kind: str = ""
    target: str = ""
    args: Any = None
    """What the step is to do; other kernels leave it out, and ``get_step`` tells."""
    decided_by: str = ""
    rationale: str = ""
    decided_at: datetime | None = None


class Event(_Wire):
    """One entry of an execution's log (protocol.md 3.4, 10)."""

    execution_id: str
    event_seq: int
    type: str
    payload: dict[str, Any]
    occurred_at: datetime
