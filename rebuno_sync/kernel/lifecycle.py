"""The state machines as tables (protocol.md 5.5, 7.3, 8, 9.4). Code asks the tables."""

from __future__ import annotations

from enum import StrEnum

from ..types import DispatchStatus, ExecutionStatus, StepStatus

__all__ = [
    "BACKOFF_BASE_SECONDS",
    "BACKOFF_MAX_SECONDS",
    "CLAIM_LIMIT",
    "ExistingStep",
    "accepts_outcome",
    "backoff_seconds",
    "claimable",
    "exhausted",
    "existing_step",
    "fence_holds",
    "live_execution",
]

BACKOFF_BASE_SECONDS = 1.0
BACKOFF_MAX_SECONDS = 30.0

CLAIM_LIMIT = 1000
"""Claims after which a dispatch ends whatever it achieved: nothing runs for ever."""


class ExistingStep(StrEnum):
    """What a submit does that meets a recorded step (protocol.md 7.3)."""

    REPLAY = "replay"
    BLOCKED = "blocked"
    START = "start"
    """Its body never ran: it becomes executing and proceeds."""
    REPEAT = "repeat"
    """Its body was cut down and may run again."""
    INDETERMINATE = "indeterminate"
    """Its body was cut down and must not run again."""
    DENIED = "denied"


_EXISTING: dict[StepStatus, ExistingStep] = {
    StepStatus.SUCCEEDED: ExistingStep.REPLAY,
    StepStatus.FAILED: ExistingStep.REPLAY,
    StepStatus.AWAITING_APPROVAL: ExistingStep.BLOCKED,
    StepStatus.ALLOWED: ExistingStep.START,
    StepStatus.PROPOSED: ExistingStep.START,
    StepStatus.EXECUTING: ExistingStep.REPEAT,
    StepStatus.DENIED: ExistingStep.DENIED,
    StepStatus.CANCELLED: ExistingStep.REPEAT,
}


def existing_step(status: StepStatus, *, at_most_once: bool) -> ExistingStep:
    """The answer for a recorded step, by the *request's* idempotency."""
    if status is StepStatus.EXECUTING and at_most_once:
        return ExistingStep.INDETERMINATE
    return _EXISTING[status]


_ACCEPTS_OUTCOME = frozenset({StepStatus.EXECUTING})


def accepts_outcome(status: StepStatus) -> bool:
    """Whether complete_step and fail_step may settle a step (protocol.md 8.1)."""
    return status in _ACCEPTS_OUTCOME


_LIVE = frozenset({ExecutionStatus.PENDING, ExecutionStatus.RUNNING, ExecutionStatus.BLOCKED})


def live_execution(status: ExecutionStatus) -> bool:
    return status in _LIVE


def fence_holds(
    status: DispatchStatus | None, attempt: int, lease_attempt: int, *, renewing: bool
) -> bool:
    """The lease fence (protocol.md 5.4): ``renewing`` also asks that the dispatch is in flight."""
    if status is None or attempt != lease_attempt:
        return False
    return status is DispatchStatus.IN_FLIGHT or not renewing


def claimable(
    status: DispatchStatus, *, due: float, now: float, lease_ended: bool, owner_alive: bool
) -> bool:
    """Whether a dispatch may be claimed now (protocol.md 5.2, 5.3; a dead owner's at once)."""
    if status in (DispatchStatus.PENDING, DispatchStatus.FAILED):
        return due <= now
    return status is DispatchStatus.IN_FLIGHT and (lease_ended or not owner_alive)


def exhausted(*, attempt: int, strikes: int, max_attempts: int) -> bool:
    """Whether a further claim is one too many.

    A strike is a claim under which nothing new was settled, so a long run survives any number of
    restarts and a run that dies on the spot ends soon.
    """
    return strikes >= max_attempts or attempt >= CLAIM_LIMIT


def backoff_seconds(attempt: int, random: float) -> float:
    """The wait after failed attempt number ``attempt`` (protocol.md 4); ``random`` in [0, 1)."""
    delay = min(BACKOFF_BASE_SECONDS * 2.0 ** min(attempt - 1, 30), BACKOFF_MAX_SECONDS)
    return delay + random * 0.25 * delay
