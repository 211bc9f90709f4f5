"""Approvals, and what an execution waits for."""

from __future__ import annotations

import sqlite3

from ...types import ApprovalStatus
from . import texts
from .rows import ApprovalRow, StepRow
from .tables import whole_step

_APPROVAL = """
SELECT a.n, a.id, a.execution, e.id, a.step, s.step_id, a.status, a.approvers, a.message,
       a.decided_by, a.rationale, a.created_at, a.decided_at, a.timeout_at, a.timeout_due,
       e.agent_id, s.kind, s.target, s.args
FROM approvals a JOIN executions e ON e.n = a.execution JOIN steps s ON s.n = a.step"""


def _approval(row: tuple[object, ...]) -> ApprovalRow:
    found = ApprovalRow._make(row)
    return found._replace(status=ApprovalStatus(found.status))


def whole_approval(db: sqlite3.Connection, row: ApprovalRow) -> ApprovalRow:
    """With the arguments of its step, which the rules have no use for."""
    return row._replace(args=texts.unpack(db, row.args))


def insert_approval(
    db: sqlite3.Connection,
    *,
    approval_id: str,
    execution: int,
    step: int,
    approvers: str,
    message: str,
    created_at: int,
    timeout_at: int,
    timeout_due: float,
) -> None:
    db.execute(
        "INSERT INTO approvals (id, execution, step, status, approvers, message, created_at,"
        " timeout_at, timeout_due) VALUES (?, ?, ?, 'pending', ?, ?, ?, ?, ?)",
        (approval_id, execution, step, approvers, message, created_at, timeout_at, timeout_due),
    )


def approval(db: sqlite3.Connection, approval_id: str) -> ApprovalRow | None:
    row = db.execute(f"{_APPROVAL} WHERE a.id = ?", (approval_id,)).fetchone()
    return None if row is None else _approval(row)


def approvals(db: sqlite3.Connection, status: str) -> list[ApprovalRow]:
    """With that status, the oldest first."""
    rows = db.execute(f"{_APPROVAL} WHERE a.status = ? ORDER BY a.n", (status,)).fetchall()
    return list(map(_approval, rows))


def approvals_of(db: sqlite3.Connection, execution: int) -> list[ApprovalRow]:
    rows = db.execute(f"{_APPROVAL} WHERE a.execution = ? ORDER BY a.n", (execution,)).fetchall()
    return list(map(_approval, rows))


def pending_of(db: sqlite3.Connection, execution: int) -> list[ApprovalRow]:
    sql = f"{_APPROVAL} WHERE a.execution = ? AND a.status = 'pending' ORDER BY a.n"
    return list(map(_approval, db.execute(sql, (execution,)).fetchall()))


def approval_of_step(db: sqlite3.Connection, step: int) -> str:
    """The id of the approval that a step waits for, or waited for; empty when there is none."""
    row = db.execute("SELECT id FROM approvals WHERE step = ?", (step,)).fetchone()
    return "" if row is None else row[0]


def decide(
    db: sqlite3.Connection,
    n: int,
    status: ApprovalStatus,
    now: int,
    *,
    decided_by: str,
    rationale: str,
) -> None:
    db.execute(
        "UPDATE approvals SET status = ?, decided_by = ?, rationale = ?, decided_at = ?"
        " WHERE n = ?",
        (status, decided_by, rationale, now, n),
    )


def overdue(db: sqlite3.Connection, boottime: float) -> list[str]:
    """The ids of the approvals whose time is over, the longest due first."""
    rows = db.execute(
        "SELECT id FROM approvals WHERE status = 'pending' AND timeout_due <= ?"
        " ORDER BY timeout_due",
        (boottime,),
    ).fetchall()
    return [row[0] for row in rows]


def next_timeout(db: sqlite3.Connection) -> float | None:
    """When the next approval's time is over, on the boot-time clock."""
    sql = "SELECT min(timeout_due) FROM approvals WHERE status = 'pending'"
    found: float | None = db.execute(sql).fetchone()[0]
    return found


def next_attempt(db: sqlite3.Connection, execution_id: str) -> float | None:
    """When an execution that waits for its next attempt may be claimed, on the boot-time clock."""
    row = db.execute(
        "SELECT d.due FROM executions e JOIN dispatches d ON d.execution = e.n"
        " WHERE e.id = ? AND d.status IN ('pending', 'failed')",
        (execution_id,),
    ).fetchone()
    return None if row is None else row[0]


def awaits_approval(db: sqlite3.Connection, execution: int) -> bool:
    sql = "SELECT 1 FROM approvals WHERE execution = ? AND status = 'pending' LIMIT 1"
    return db.execute(sql, (execution,)).fetchone() is not None


def set_status(db: sqlite3.Connection, execution: int, status: str, now: int) -> None:
    """Of a live execution."""
    sql = "UPDATE executions SET status = ?, updated_at = ? WHERE n = ?"
    db.execute(sql, (status, now, execution))


def terms(db: sqlite3.Connection, execution: int) -> tuple[str, int]:
    """Whom an execution's dispatches are for, and the most attempts of each."""
    sql = "SELECT agent_id, max_attempts FROM executions WHERE n = ?"
    found: tuple[str, int] = db.execute(sql, (execution,)).fetchone()
    return found


def decisions(db: sqlite3.Connection, execution: int) -> list[tuple[StepRow, str, str | None]]:
    """What was said of each step, in order: the step, the event's type and detail."""
    columns = ", ".join(f"s.{name}" for name in StepRow._fields)
    rows = db.execute(
        f"SELECT v.type, v.detail, {columns} FROM events v JOIN steps s ON s.n = v.step"
        " WHERE v.execution = ? AND v.type IN"
        " ('step.allowed', 'step.denied', 'step.awaiting_approval') ORDER BY v.seq",
        (execution,),
    ).fetchall()
    return [
        (whole_step(db, StepRow._make(row[2:])), row[0], texts.unpack(db, row[1])) for row in rows
    ]
