"""Requests of agents that name no attempt: those of the first generation (protocol.md 0.1, 2.2).

Such an agent names its dispatch when it submits, and nothing when it does anything else. What it
asks counts for the newest attempt of its execution: nobody can tell which one it runs. But an
attempt under which somebody has asked who names it is closed to those who do not. Functions of a
transaction.
"""

from __future__ import annotations

from ..errors import APIError, api_error
from ..types import DecisionKind, LeaseKey, StepDecision
from .moment import Moment
from .operations import (
    DONE,
    Answer,
    Asked,
    Beat,
    End,
    Operation,
    Settle,
    Submit,
    check_owner,
    standing,
)
from .steps import TERMINAL
from .store import Connection, queue

__all__ = ["OF_ALL_GENERATIONS", "UNNAMED", "newest", "perform"]

UNNAMED = 0
"""The attempt of a lease that names none."""

OF_ALL_GENERATIONS = (Submit, Settle, End, Beat)
"""What such agents can ask."""

_RUNNER = "unnamed"
"""Whom such a request binds an attempt to: whoever names attempts is a UUID, or nobody."""

_SUPERSEDED = "lease_superseded"
_LEAVE = Answer(200, StepDecision(DecisionKind.EXECUTION_BLOCKED))


def perform(db: Connection, operation: Operation, asked: Asked, now: Moment) -> Answer:
    """Check and do what was asked."""
    if isinstance(operation, Submit):
        return _submit(db, operation, asked, now)
    try:
        return operation.apply(db, asked._replace(lease=newest(db, asked.lease)), now)
    except APIError as error:
        if isinstance(operation, Beat) and error.code == _SUPERSEDED:
            return DONE  # Nothing is renewed; these agents are never told so (protocol.md 5.3).
        raise


def newest(db: Connection, lease: LeaseKey) -> LeaseKey:
    """The newest attempt of the lease's execution, whoever has it."""
    found = queue.newest_attempt(db, lease.execution_id)
    return lease if found is None else LeaseKey(lease.execution_id, *found, _RUNNER)


def _submit(db: Connection, operation: Submit, asked: Asked, now: Moment) -> Answer:
    """An attempt that is over is told that its execution is blocked: on this its handler leaves
    without a word, on any error it would report the execution as failed, which it no longer runs.
    """
    lease = asked.lease
    if not lease.dispatch_id:
        raise _bad_request("missing dispatch_id")
    at = standing(db, asked, now)
    check_owner(at, asked)
    if at.status.terminal:
        return Answer(200, TERMINAL)
    found = queue.attempt_of(db, lease.dispatch_id)
    if found is None:
        raise _bad_request("unknown dispatch_id")
    execution_id, attempt = found
    if execution_id != lease.execution_id:
        raise _bad_request("dispatch_id belongs to another execution")
    present = lease._replace(attempt=attempt, runner=_RUNNER)
    try:
        return operation.apply(db, asked._replace(lease=present), now)
    except APIError as error:
        if error.code == _SUPERSEDED:
            return _LEAVE
        raise


def _bad_request(detail: str) -> APIError:
    return api_error("validation_error", f"validation error: {detail}", 400)
