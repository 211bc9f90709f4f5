"""Rows as the operator and the agent see them (protocol.md 3, 10)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from ..types import Agent, ApiKey, Event, Execution, Step, Usage
from .store.rows import AgentRow, ExecutionRow, KeyRow, RemovedRow, StepRow

__all__ = [
    "agent_view",
    "dispatch_status",
    "event_view",
    "execution_status",
    "execution_view",
    "key_view",
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
    )


def agent_view(row: AgentRow) -> Agent:
    return Agent.model_construct(
        id=row.id,
        webhook_url=row.webhook_url,
        registered_at=_time(row.registered_at),
        lease_timeout_seconds=row.lease_seconds,
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
    if kind == "step.retrying":
        payload["error"] = _json(detail["error"])
    return payload


_STATUS_OF = {"execution.created": "pending", "execution.started": "running"}


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
    _, _, _, _, output, reason, *_ = row
    payload: _Payload = {"execution_id": execution_id, "status": execution_status(kind)}
    if kind == "execution.completed" and output is not None:
        payload["output"] = _json(output)
    if kind in ("execution.failed", "execution.cancelled") and reason:
        payload["reason"] = reason
    if "deadline_at" in detail:
        payload["deadline_at"] = _time(detail["deadline_at"]).isoformat().replace("+00:00", "Z")
    return payload


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


def event_view(execution_id: str, row: tuple[Any, ...]) -> Event:
    seq, kind, detail_json, occurred_at, *_ = row
    detail: _Payload = _json(detail_json) or {}
    build: dict[str, Callable[[], _Payload]] = {
        "step": lambda: _step_payload(kind, row, detail),
        "execution": lambda: _execution_payload(execution_id, kind, row, detail),
        "dispatch": lambda: _dispatch_payload(execution_id, kind, detail),
    }
    return Event.model_construct(
        execution_id=execution_id,
        event_seq=seq,
        type=kind,
        payload=build[kind.partition(".")[0]](),
        occurred_at=_time(occurred_at),
    )
