"""Steps that wait for a person (protocol.md 12). Functions of a transaction.

An approval is decided once, whoever is first: granted or denied by a person, or expired by its
timeout or with its execution.
"""

from __future__ import annotations

import json

from ..errors import APIError, api_error
from ..types import ApprovalStatus, StepStatus
from . import suspension
from .moment import Moment, utc_text
from .policy import Approvers
from .store import Connection, tables, waiting
from .store.rows import ApprovalRow
from .suspension import Entry

__all__ = ["close", "deny", "expire_overdue", "find", "grant", "request"]

DEFAULT_TIMEOUT_SECONDS = 15 * 60.0

_APPROVAL_DENIED = "approval_denied"
_APPROVAL_TIMEOUT = "approval_timeout"
_TIMED_OUT = "timeout"


def find(db: Connection, approval_id: str) -> ApprovalRow:
    row = waiting.approval(db, approval_id)
    if row is None:
        raise api_error("not_found", f"not found: approval {approval_id}", 404)
    return row


def request(
    db: Connection, execution: int, step: int, asked: Approvers, now: Moment
) -> tuple[str, Entry]:
    """Ask for an approval of a step: its id, and the event."""
    approval_id = now.new_id()
    seconds = asked.timeout_seconds or DEFAULT_TIMEOUT_SECONDS
    timeout_at, timeout_due = now.in_seconds(seconds)
    waiting.insert_approval(
        db,
        approval_id=approval_id,
        execution=execution,
        step=step,
        approvers=json.dumps(asked.names),
        message=asked.message,
        created_at=now.wall,
        timeout_at=timeout_at,
        timeout_due=timeout_due,
    )
    return approval_id, ("approval.requested", step, json.dumps({"approval_id": approval_id}))


def grant(db: Connection, approval_id: str, decided_by: str, rationale: str, now: Moment) -> None:
    """The step may run. Raises ``conflict`` when it was decided, ``forbidden`` for a stranger."""
    row = _undecided(db, approval_id, decided_by, now)
    event = _decide(db, row, ApprovalStatus.GRANTED, now, decided_by, rationale)
    tables.allow_step(db, row.step)
    _go_on(db, row.execution, [event, ("step.allowed", row.step, None)], now)


def deny(db: Connection, approval_id: str, decided_by: str, rationale: str, now: Moment) -> None:
    """The step may not run; its handler is told why. Raises as ``grant`` does."""
    row = _undecided(db, approval_id, decided_by, now)
    event = _decide(db, row, ApprovalStatus.DENIED, now, decided_by, rationale)
    entries = [event, _denied(db, row, rationale or _APPROVAL_DENIED, now)]
    _go_on(db, row.execution, entries, now)


def expire_overdue(db: Connection, now: Moment) -> None:
    """Whatever was not decided in time is denied."""
    for approval_id in waiting.overdue(db, now.boottime):
        row = find(db, approval_id)
        event = _decide(db, row, ApprovalStatus.EXPIRED, now, "", _TIMED_OUT)
        _go_on(db, row.execution, [event, _denied(db, row, _APPROVAL_TIMEOUT, now)], now)


def close(db: Connection, execution: int, reason: str, now: Moment) -> list[Entry]:
    """The execution has been cancelled, so nobody is asked any more; the events."""
    entries: list[Entry] = []
    for row in waiting.pending_of(db, execution):
        entries.append(_decide(db, row, ApprovalStatus.EXPIRED, now, "", reason))
        entries.append(_denied(db, row, reason, now))
    return entries


def _undecided(db: Connection, approval_id: str, decided_by: str, now: Moment) -> ApprovalRow:
    row = find(db, approval_id)
    if row.status is not ApprovalStatus.PENDING:
        raise _conflict(row)
    if row.timeout_due <= now.boottime:
        raise _conflict(row._replace(status=ApprovalStatus.EXPIRED, decided_at=row.timeout_at))
    approvers: list[str] = json.loads(row.approvers)
    if approvers and (not decided_by or decided_by not in approvers):
        who = repr(decided_by) if decided_by else "somebody without a name (decided_by)"
        raise api_error(
            "forbidden",
            f"forbidden: {who} is no approver of {approval_id}; its approvers are"
            f" {', '.join(approvers)}",
            403,
        )
    return row


def _conflict(row: ApprovalRow) -> APIError:
    """The second decision is told of the first."""
    by = f" by {row.decided_by!r}" if row.decided_by else ""
    when = "" if row.decided_at is None else f" at {utc_text(row.decided_at)}"
    why = f": {row.rationale}" if row.rationale else ""
    return api_error(
        "conflict", f"conflict: approval {row.id} was already {row.status}{by}{when}{why}", 409
    )


def _decide(
    db: Connection,
    row: ApprovalRow,
    status: ApprovalStatus,
    now: Moment,
    decided_by: str,
    rationale: str,
) -> Entry:
    waiting.decide(db, row.n, status, now.wall, decided_by=decided_by, rationale=rationale)
    detail = {"approval_id": row.id, "decided_by": decided_by, "rationale": rationale}
    said = {name: text for name, text in detail.items() if text}
    return f"approval.{status}", row.step, json.dumps(said)


def _denied(db: Connection, row: ApprovalRow, reason: str, now: Moment) -> Entry:
    error = json.dumps({"reason": reason})
    tables.settle_step(db, row.step, StepStatus.DENIED, now.wall, error=error)
    return "step.denied", row.step, None


def _go_on(db: Connection, execution: int, entries: list[Entry], now: Moment) -> None:
    entries += suspension.resume(db, execution, now)
    tables.append_events(db, execution, tables.last_seq(db, execution), entries, now.wall)
