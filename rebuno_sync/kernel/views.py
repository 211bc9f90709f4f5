"""Rows as the operator and the agent see them (protocol.md 3, 10)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from ..types import (
    Agent,
    ApiKey,
    Approval,
    Event,
    Execution,
    ForkPoints,
    PolicyReport,
    PolicyResult,
    ResourceCheckpoint,
    Step,
    Usage,
)
from .forks import Points
from .policy import Report, Trial
from .store.rows import AgentRow, ApprovalRow, ExecutionRow, KeyRow, RemovedRow, StepRow

__all__ = [
    "agent_view",
    "approval_status",
    "approval_view",
    "dispatch_status",
    "event_view",
    "execution_status",
    "execution_view",
    "key_view",
    "points_view",
    "report_view",
    "spawned_by_json",
    "step_view",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _time(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)


def _optional_time(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else _time(microseconds)


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def execution_view(row: ExecutionRow) -> Execution:
    return Execution.model_construct(
        id=row.id,
        agent_id=row.agent_id,
        status=row.status,
        created_at=_time(row.created_at),
        updated_at=_time(row.updated_at),
        input=_json(row.input),
        output=_json(row.output),
        failure_reason=row.failure_reason,
        deadline_at=_optional_time(row.deadline_at),
        idempotency_key=row.idempotency_key,
        input_hash=row.input_hash if isinstance(row, RemovedRow) else "",
        session=row.session,
        parent_execution_id=row.parent,
        spawned_by=_json(spawned_by_json(row)),
        on_behalf_of=row.on_behalf_of,
        forked_from=row.forked_from,
        fork_seq=row.fork_seq or 0,
    )


def spawned_by_json(row: ExecutionRow) -> str | None:
    """What a subagent stands for, as JSON."""
    if row.spawner is None:
        return None
    return json.dumps({"execution_id": row.spawner, "step_id": row.spawner_step})


def points_view(points: Points) -> ForkPoints:
    return ForkPoints.model_construct(
        latest_seq=points.latest_seq,
        resources=points.resources,
        checkpoints=[
            ResourceCheckpoint.model_construct(**row._asdict()) for row in points.checkpoints
        ],
    )


def agent_view(row: AgentRow) -> Agent:
    return Agent.model_construct(
        id=row.id,
        webhook_url=row.webhook_url,
        registered_at=_time(row.registered_at),
        lease_timeout_seconds=row.lease_seconds,
        policy_bundle=row.policy_bundle,
        metadata=_json(row.metadata),
    )


def key_view(row: KeyRow, token: str = "") -> ApiKey:
    return ApiKey.model_construct(
        id=row.id,
        name=row.name,
        scopes=row.scopes.split(),
        created_at=_time(row.created_at),
        revoked_at=_optional_time(row.revoked_at),
        token=token,
    )


def approval_view(row: ApprovalRow) -> Approval:
    return Approval.model_construct(
        id=row.id,
        step_id=row.step_id,
        execution_id=row.execution_id,
        status=row.status,
        agent_id=row.agent_id,
        kind=row.kind,
        target=row.target,
        args=_json(row.args),
        timeout_at=_time(row.timeout_at),
        created_at=_time(row.created_at),
        approvers=_json(row.approvers) or None,
        message=row.message,
        decided_by=row.decided_by,
        rationale=row.rationale,
        decided_at=_optional_time(row.decided_at),
    )


def report_view(report: Report) -> PolicyReport:
    return PolicyReport.model_construct(
        results=list(map(_result_view, report.trials)),
        failed=report.failed,
        unexercised_rules=report.unexercised_rules,
    )


def _result_view(trial: Trial) -> PolicyResult:
    return PolicyResult.model_construct(
        **{**trial.case._asdict(), "args": _json(trial.case.args)},
        decision=str(trial.action),
        rule_id=trial.rule_id,
        reason=trial.reason,
        passed=not trial.failure,
        failure=trial.failure,
    )


def step_view(execution_id: str, row: StepRow) -> Step:
    return Step.model_construct(
        step_id=row.step_id,
        execution_id=execution_id,
        kind=row.kind,
        target=row.target,
        args_hash=row.args_hash,
        occurrence=row.occurrence,
        status=row.status,
        idempotency=row.idempotency,
        args=_json(row.args),
        result=_json(row.result),
        error=_json(row.error),
        usage=None if row.usage is None else Usage.model_validate_json(row.usage),
        started_at=_optional_time(row.started_at),
        completed_at=_optional_time(row.completed_at),
    )


_Payload = dict[str, Any]


def _step_payload(kind: str, row: tuple[Any, ...], detail: _Payload) -> _Payload:
    _, _, _, _, _, _, step_id, step_kind, target, error = row
    payload = {"step_id": step_id, "step_type": step_kind, "target": target, **detail}
    if kind in ("step.failed", "step.denied", "step.cancelled"):
        payload["error"] = _json(error)
    elif "error" in detail:
        payload["error"] = _json(detail["error"])
    return payload


_STATUS_OF = {
    "execution.created": "pending",
    "execution.started": "running",
    "execution.resumed": "running",
}


def execution_status(kind: str) -> str:
    """The status that an event of an execution names."""
    return _STATUS_OF.get(kind, kind.partition(".")[2])


def dispatch_status(kind: str) -> str:
    """The status that an event of a dispatch names."""
    word = kind.partition(".")[2]
    return {"queued": "pending", "discarded": "exhausted"}.get(word, word)


def _execution_payload(
    execution_id: str, kind: str, row: tuple[Any, ...], detail: _Payload
) -> _Payload:
    if kind == "execution.forked":
        return detail
    _, _, _, _, output, reason, *_ = row
    payload: _Payload = {"execution_id": execution_id, "status": execution_status(kind)}
    if kind == "execution.completed" and output is not None:
        payload["output"] = _json(output)
    if kind in ("execution.failed", "execution.cancelled") and reason:
        payload["reason"] = reason
    if "deadline_at" in detail:
        payload["deadline_at"] = _time(detail["deadline_at"]).isoformat().replace("+00:00", "Z")
    if "wake_at" in detail:
        payload["wake_at"] = _time(detail["wake_at"]).isoformat().replace("+00:00", "Z")
    said = ("session", "parent_execution_id", "spawned_by", "reason")
    return {**payload, **{name: detail[name] for name in said if name in detail}}


def _dispatch_payload(execution_id: str, kind: str, detail: _Payload) -> _Payload:
    payload = {
        "dispatch_id": detail["dispatch_id"],
        "execution_id": execution_id,
        "status": dispatch_status(kind),
        "attempt": detail["attempt"],
    }
    if "reason" in detail:
        payload["reason"] = detail["reason"]
    return payload


def approval_status(kind: str) -> str:
    """The status that an event of an approval names."""
    word = kind.partition(".")[2]
    return "pending" if word == "requested" else word


def _approval_payload(
    execution_id: str, kind: str, row: tuple[Any, ...], detail: _Payload
) -> _Payload:
    names = {"step_id": row[6], "execution_id": execution_id, "status": approval_status(kind)}
    return {"approval_id": detail["approval_id"], **names, **detail}


def event_view(execution_id: str, row: tuple[Any, ...]) -> Event:
    seq, kind, detail_json, occurred_at, *_ = row
    detail: _Payload = _json(detail_json) or {}
    build: dict[str, Callable[[], _Payload]] = {
        "step": lambda: _step_payload(kind, row, detail),
        "execution": lambda: _execution_payload(execution_id, kind, row, detail),
        "approval": lambda: _approval_payload(execution_id, kind, row, detail),
        "dispatch": lambda: _dispatch_payload(execution_id, kind, detail),
        "resource": lambda: detail,
    }
    return Event.model_construct(
        execution_id=execution_id,
        event_seq=seq,
        type=kind,
        payload=build[kind.partition(".")[0]](),
        occurred_at=_time(occurred_at),
    )
