"""Failed tries of a step that are followed by another (protocol.md 17, ``attempts``).

Between two tries the step is ``allowed`` again, so that a process that dies there leaves no doubt
whether its body ran. Functions of a transaction.
"""

from __future__ import annotations

import json

from ..errors import api_error
from ..types import DecisionKind, LeaseKey, StepDecision, StepStatus
from . import fence, steps
from .lifecycle import accepts_outcome
from .moment import Moment
from .store import Connection, tables
from .store.rows import Standing, StepRow

__all__ = ["begun", "failed"]

_RECORDED = StepDecision(DecisionKind.RECORDED)


def failed(
    db: Connection,
    at: Standing,
    lease: LeaseKey,
    row: StepRow,
    now: Moment,
    *,
    attempt: int,
    error: str,
    retry_in: float,
) -> StepDecision:
    """Try number ``attempt`` failed; the next one may begin in ``retry_in`` seconds."""
    if (over := _over(at, row)) is not None:
        return over
    if row.status is StepStatus.ALLOWED and row.tries == attempt:
        return _RECORDED  # Its first answer was lost.
    if not accepts_outcome(row.status) or attempt <= row.tries:
        raise steps.wrong_status(row)
    fence.pass_check_fence(at, lease)
    tables.put_back_step(db, row.n, attempt, *now.in_seconds(retry_in))
    # The error is kept as text: read and written again, a number might become another.
    detail = json.dumps({"attempt": attempt, "retry_in": retry_in, "error": error})
    entry = ("step.retrying", row.n, detail)
    tables.append_events(db, at.execution, at.last_seq, [entry], now.wall)
    steps.made_progress(db, at)
    return _RECORDED


def begun(
    db: Connection, at: Standing, lease: LeaseKey, row: StepRow, now: Moment, *, attempt: int
) -> StepDecision:
    """Try number ``attempt`` begins: the step is ``executing`` before its body is."""
    if (over := _over(at, row)) is not None:
        return over
    waits = row.status is StepStatus.ALLOWED
    if not row.tries or not (waits or accepts_outcome(row.status)):
        raise steps.wrong_status(row)
    if attempt != row.tries + 1:
        message = f"conflict: try {attempt} cannot begin: {row.tries} have failed"
        raise api_error("conflict", message, 409)
    fence.pass_renew_fence(db, at, lease, now)
    if waits:
        tables.start_step(db, row.n, now.wall, now.boottime)
        entry = ("step.executing", row.n, None)
        tables.append_events(db, at.execution, at.last_seq, [entry], now.wall)
    return _RECORDED


def _over(at: Standing, row: StepRow) -> StepDecision | None:
    """The answer when there is nothing left to try."""
    if at.status.terminal:
        return steps.TERMINAL
    return steps.settled_already(row, failing=True) if row.status.terminal else None
