"""Rows as JSON text for the wire (protocol.md 3, 10). Values of users are spliced in as they were
sent."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ...errors import APIError
from ...types import ResourceView, StepDecision, Touched
from ..forks import Points
from ..moment import utc_text
from ..policy import Report, Trial
from ..store.rows import AgentRow, ApprovalRow, ExecutionRow, KeyRow, RemovedRow, StepRow
from ..views import approval_status, dispatch_status, execution_status, spawned_by_json

__all__ = [
    "agent_json",
    "approval_json",
    "decision_json",
    "error_json",
    "event_json",
    "execution_json",
    "key_json",
    "list_json",
    "number_json",
    "page_json",
    "points_json",
    "report_json",
    "step_json",
    "view_json",
]

_Member = tuple[str, str | None]
"""A key and JSON text; members with ``None`` are left out."""

_text = json.dumps


def _object(members: Iterable[_Member]) -> str:
    return "{" + ",".join([f'"{key}":{text}' for key, text in members if text is not None]) + "}"


def _unless_empty(value: str | None) -> str | None:
    return json.dumps(value) if value else None


def _json(value: Any) -> str | None:
    return json.dumps(value) if value else None


def _time(microseconds: int | None) -> str | None:
    return None if microseconds is None else f'"{utc_text(microseconds)}"'


def number_json(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def _number(value: float | None) -> str | None:
    return None if value is None else number_json(float(value))


def list_json(items: Iterable[str]) -> str:
    return "[" + ",".join(items) + "]"


def execution_json(row: ExecutionRow, restoration: dict[str, Any] | None = None) -> str:
    return _object(
        (
            ("id", _text(row.id)),
            ("agent_id", _text(row.agent_id)),
            ("status", _text(row.status)),
            ("input", row.input),
            ("output", row.output),
            ("failure_reason", _unless_empty(row.failure_reason)),
            ("created_at", _time(row.created_at)),
            ("updated_at", _time(row.updated_at)),
            ("deadline_at", _time(row.deadline_at)),
            ("idempotency_key", _unless_empty(row.idempotency_key)),
            ("input_hash", _text(row.input_hash) if isinstance(row, RemovedRow) else None),
            ("session", _unless_empty(row.session)),
            ("parent_execution_id", _unless_empty(row.parent)),
            ("spawned_by", spawned_by_json(row)),
            ("on_behalf_of", _unless_empty(row.on_behalf_of)),
            ("forked_from", _unless_empty(row.forked_from)),
            ("fork_seq", _number(row.fork_seq)),
            ("restoration", _json(restoration)),
        )
    )


def points_json(points: Points) -> str:
    checkpoints = [
        {name: value for name, value in row._asdict().items() if value is not None}
        for row in points.checkpoints
    ]
    return _object(
        (
            ("latest_seq", str(points.latest_seq)),
            ("resources", _text(points.resources)),
            ("checkpoints", _text(checkpoints)),
        )
    )


def page_json(rows: Iterable[ExecutionRow], next_cursor: str | None) -> str:
    return _object(
        (
            ("executions", list_json(map(execution_json, rows))),
            ("next_cursor", _unless_empty(next_cursor)),
        )
    )


def step_json(execution_id: str, row: StepRow, *, values: bool = True) -> str:
    """``values``: whether to tell its arguments, its result and its error."""
    return _object(
        (
            ("step_id", _text(row.step_id)),
            ("execution_id", _text(execution_id)),
            ("kind", _text(row.kind)),
            ("target", _text(row.target)),
            ("args_hash", _text(row.args_hash)),
            ("occurrence", str(row.occurrence)),
            ("status", _text(row.status)),
            ("idempotency", _text(row.idempotency)),
            ("args", row.args if values else None),
            ("result", row.result if values else None),
            ("error", row.error if values else None),
            ("usage", row.usage),
            ("started_at", _time(row.started_at)),
            ("completed_at", _time(row.completed_at)),
        )
    )


_SAID_OF_EXECUTIONS = ("session", "parent_execution_id", "spawned_by")
_SAID_OF_STEPS = ("rule_id", "reason", "policy_hash", "usage", "resources", "generations")


def event_json(execution_id: str, row: tuple[Any, ...]) -> str:
    seq, kind, detail_json, occurred_at, output, reason, step_id, step_kind, target, error = row
    detail: dict[str, Any] = json.loads(detail_json) if detail_json else {}
    subject = kind.partition(".")[0]
    if subject == "step":
        settled = kind in ("step.failed", "step.denied", "step.cancelled")
        error = error if settled else detail.get("error")
        payload: list[_Member] = [
            ("step_id", _text(step_id or detail["step_id"])),
            ("step_type", _text(step_kind if step_id else detail["step_type"])),
            ("target", _text(target if step_id else detail["target"])),
            *((name, _json(detail.get(name))) for name in _SAID_OF_STEPS),
            ("error", error),
            ("attempt", _number(detail.get("attempt"))),
            ("retry_in", _number(detail.get("retry_in"))),
        ]
    elif subject == "resource" or kind == "execution.forked":
        payload = [(name, _text(value)) for name, value in detail.items()]
    elif subject == "execution":
        ended = kind in ("execution.failed", "execution.cancelled")
        why = reason if ended else detail.get("reason")
        payload = [
            ("execution_id", _text(execution_id)),
            ("status", _text(execution_status(kind))),
            ("output", output if kind == "execution.completed" else None),
            ("reason", _unless_empty(why)),
            ("deadline_at", _time(detail.get("deadline_at"))),
            ("wake_at", _time(detail.get("wake_at"))),
            *((name, _json(detail.get(name))) for name in _SAID_OF_EXECUTIONS),
        ]
    elif subject == "approval":
        payload = [
            ("approval_id", _text(detail["approval_id"])),
            ("step_id", _text(step_id)),
            ("execution_id", _text(execution_id)),
            ("status", _text(approval_status(kind))),
            ("decided_by", _unless_empty(detail.get("decided_by"))),
            ("rationale", _unless_empty(detail.get("rationale"))),
        ]
    else:
        payload = [
            ("dispatch_id", _text(detail["dispatch_id"])),
            ("execution_id", _text(execution_id)),
            ("status", _text(dispatch_status(kind))),
            ("attempt", str(detail["attempt"])),
            ("reason", _unless_empty(detail.get("reason"))),
        ]
    return _object(
        (
            ("execution_id", _text(execution_id)),
            ("event_seq", str(seq)),
            ("type", _text(kind)),
            ("payload", _object(payload)),
            ("occurred_at", _time(occurred_at)),
        )
    )


def agent_json(row: AgentRow) -> str:
    """The secret is not among what is shown."""
    return _object(
        (
            ("id", _text(row.id)),
            ("webhook_url", _text(row.webhook_url)),
            ("registered_at", _time(row.registered_at)),
            (
                "lease_timeout_seconds",
                number_json(row.lease_seconds) if row.lease_seconds else None,
            ),
            ("policy_bundle", _unless_empty(row.policy_bundle)),
            ("metadata", row.metadata),
        )
    )


def key_json(row: KeyRow, token: str = "") -> str:
    """The token is shown once, to whoever made it."""
    return _object(
        (
            ("id", _text(row.id)),
            ("name", _text(row.name)),
            ("scopes", _text(row.scopes.split())),
            ("created_at", _time(row.created_at)),
            ("revoked_at", _time(row.revoked_at)),
            ("token", _unless_empty(token)),
        )
    )


def approval_json(row: ApprovalRow) -> str:
    return _object(
        (
            ("id", _text(row.id)),
            ("step_id", _text(row.step_id)),
            ("execution_id", _text(row.execution_id)),
            ("status", _text(row.status)),
            ("agent_id", _text(row.agent_id)),
            ("kind", _text(row.kind)),
            ("target", _text(row.target)),
            ("args", row.args),
            ("approvers", row.approvers if row.approvers != "[]" else "null"),
            ("message", _unless_empty(row.message)),
            ("decided_by", _unless_empty(row.decided_by)),
            ("rationale", _unless_empty(row.rationale)),
            ("timeout_at", _time(row.timeout_at)),
            ("created_at", _time(row.created_at)),
            ("decided_at", _time(row.decided_at)),
        )
    )


def report_json(report: Report) -> str:
    unexercised = report.unexercised_rules
    return _object(
        (
            ("results", list_json(map(_trial_json, report.trials))),
            ("failed", str(report.failed)),
            ("unexercised_rules", _json(unexercised)),
        )
    )


def _trial_json(trial: Trial) -> str:
    case = trial.case._asdict()
    args = case.pop("args")
    return _object(
        (
            *((name, _unless_empty(text)) for name, text in case.items()),
            ("args", args),
            ("decision", _text(trial.action)),
            ("rule_id", _unless_empty(trial.rule_id)),
            ("reason", _unless_empty(trial.reason)),
            ("pass", _text(not trial.failure)),
            ("failure", _unless_empty(trial.failure)),
        )
    )


def decision_json(decision: StepDecision) -> str:
    return _object(
        (
            ("decision", _text(decision.decision)),
            ("step_id", _unless_empty(decision.step_id)),
            ("result", decision.result_json),
            ("error", decision.error_json),
            ("approval_id", _unless_empty(decision.approval_id)),
            ("reason", _unless_empty(decision.reason)),
            ("rule_id", _unless_empty(decision.rule_id)),
            ("attempt", _number(decision.attempt or None)),
            ("retry_in", _number(decision.retry_in if decision.attempt else None)),
            ("resources", _json([_touched(it) for it in decision.resources])),
        )
    )


def _touched(it: Touched) -> dict[str, Any]:
    return {**it._asdict(), "due": True} if it.due else {"key": it.key, "generation": it.generation}


def view_json(view: ResourceView) -> str:
    return view.model_dump_json(exclude_none=True)


def error_json(error: APIError) -> str:
    return _object((("code", _text(error.code)), ("message", _text(error.message))))
