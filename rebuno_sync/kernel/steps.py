"""Submitting steps and recording their outcomes (protocol.md 7, 8). Functions of a transaction."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import NamedTuple

from ..errors import APIError, api_error
from ..types import (
    DecisionKind,
    ExecutionStatus,
    Idempotency,
    LeaseKey,
    Proposal,
    StepDecision,
    StepKind,
    StepStatus,
    Touched,
    Usage,
)
from . import approvals, fence, resources, ruling, suspension
from .attempts import Enclosed
from .lifecycle import ExistingStep, accepts_outcome, existing_step
from .moment import Moment
from .policy import Action, Verdict
from .resources import NOTHING_CAPTURED, Captures
from .store import Connection, tables, waiting
from .store.rows import Standing, StepRow
from .suspension import Entry

__all__ = [
    "TERMINAL",
    "Call",
    "answered_again",
    "consumes_place",
    "decide",
    "look_up",
    "made_progress",
    "recorded",
    "settle",
    "settle_found",
    "settled_ahead",
    "settled_already",
    "step_of",
    "submit",
    "wrong_status",
]

INDETERMINATE = json.dumps(
    {
        "message": "outcome unknown: this may already have taken effect."
        " Check the state before continuing.",
        "reason": "indeterminate",
    }
)

RATE_LIMIT_EXCEEDED = "rate_limit_exceeded"

TERMINAL = StepDecision(DecisionKind.EXECUTION_TERMINAL)


_CONSUMES_PLACE = frozenset(
    {DecisionKind.PROCEED, DecisionKind.REPLAY, DecisionKind.DENIED, DecisionKind.BLOCKED}
)


def consumes_place(decision: StepDecision) -> bool:
    """Whether a decision uses up its call's occurrence (protocol.md 6.3)."""
    return bool(decision.step_id) and decision.decision in _CONSUMES_PLACE


class Call(NamedTuple):
    """A submit with its identity (protocol.md 6)."""

    proposal: Proposal
    args_hash: str
    occurrence: int
    step_id: str
    keeps_tries: bool = True
    """Whether who asks knows what failed tries are (protocol.md 17, ``attempts``)."""


def look_up(db: Connection, lease: LeaseKey, step_id: str) -> StepDecision | None:
    """The decision on a step that is settled already; ``None`` when a submit must decide.

    A settled step never changes, and the fence is read with it, so this needs no lock.
    """
    found = tables.settled_step(db, lease, step_id)
    return None if found is None else recorded(*found)


def enclosed_ahead(db: Connection, execution_id: str) -> dict[str, list[Enclosed]]:
    """By parent, the steps that were called in other steps' bodies."""
    found: dict[str, list[Enclosed]] = {}
    for parent, step_id, kind, target, args_hash, occurrence in tables.enclosed_steps(
        db, execution_id
    ):
        found.setdefault(parent, []).append(
            Enclosed(step_id, (kind, target, args_hash), occurrence)
        )
    return found


def settled_ahead(db: Connection, lease: LeaseKey) -> dict[str, StepDecision]:
    """The decisions on all settled steps whose record is small, read at once for a replay."""
    return {found[0]: recorded(*found) for found in tables.small_settled_steps(db, lease)}


def recorded(
    step_id: str, status: StepStatus, result: str | None, error: str | None, rule_id: str
) -> StepDecision:
    """The answer to a submit that meets a settled step."""
    if status is StepStatus.DENIED:
        reason = json.loads(error or "{}").get("reason") or "policy_denied"
        return StepDecision(DecisionKind.DENIED, step_id, reason=reason, rule_id=rule_id)
    return StepDecision(DecisionKind.REPLAY, step_id, result_json=result, error_json=error)


def submit(db: Connection, lease: LeaseKey, call: Call, now: Moment) -> StepDecision:
    """Decide on an effect before it runs, and record the decision (protocol.md 7.2)."""
    at = fence.standing(db, lease, now)
    if at.status.terminal:
        return TERMINAL
    fence.pass_renew_fence(db, at, lease, now)
    return decide(db, at, call, now)


def decide(db: Connection, at: Standing, call: Call, now: Moment) -> StepDecision:
    """What a submit that has passed the fence is answered; recorded."""
    row = tables.step(db, at.execution, call.step_id)
    if row is not None:
        return _meet(db, at, row, call, now)
    if at.status is ExecutionStatus.BLOCKED:
        return StepDecision(DecisionKind.EXECUTION_BLOCKED)
    resources.check_known(db, at.execution, call.proposal.resources)
    verdict = ruling.rule(db, at, call.proposal, call.args_hash)
    wait = ruling.take_token(db, at, verdict, now)
    if wait > 0:
        return _limit(db, at, call, verdict, wait, now)
    return _record(db, at, call, ruling.within_budget(db, at, verdict), now)


def _limit(
    db: Connection, at: Standing, call: Call, verdict: Verdict, wait: float, now: Moment
) -> StepDecision:
    """Refuse a call, or park its execution until there is a token (protocol.md 7.4). Neither is a
    step: the event has all there is to say."""
    seconds = ruling.parking_seconds(db, at, verdict.rate_limit, wait, now)
    detail = {
        "step_id": call.step_id,
        "step_type": call.proposal.kind,
        "target": call.proposal.target,
        "rule_id": verdict.rule_id,
        "error": json.dumps({"reason": RATE_LIMIT_EXCEEDED, "rule_id": verdict.rule_id}),
    }
    entries: list[Entry] = [("step.rate_limited", None, json.dumps(detail))]
    decision = DecisionKind.RATE_LIMITED
    if seconds is not None:
        entries.append(suspension.queue_dispatch(db, at.execution, now, in_seconds=seconds))
        decision = DecisionKind.BLOCKED
    tables.append_events(db, at.execution, at.last_seq, entries, now.wall)
    return StepDecision(decision, reason=RATE_LIMIT_EXCEEDED)


def _record(
    db: Connection, at: Standing, call: Call, verdict: Verdict, now: Moment
) -> StepDecision:
    proposal = call.proposal
    reason, error = verdict.reason, None
    if verdict.action is Action.DENY:
        reason = reason or "policy_denied"
        error = json.dumps({"reason": reason, "rule_id": verdict.rule_id})
    n = tables.insert_step(
        db,
        at.execution,
        (
            call.step_id,
            proposal.kind,
            proposal.target,
            call.args_hash,
            call.occurrence,
            _STATUS_AFTER[verdict.action],
            proposal.idempotency or Idempotency.SAFE_TO_RETRY,
            proposal.args,
            None,
            error,
            verdict.rule_id,
            proposal.parent,
            *((now.wall, now.boottime) if verdict.action is Action.ALLOW else (None, None)),
            None if error is None else now.wall,
        ),
    )
    rule = _rule_detail(verdict)
    entries: list[Entry] = [("step.proposed", n, None)]
    match verdict.action:
        case Action.ALLOW:
            touched, said = _begin(db, at, n, call, len(entries) + 2)
            decision = StepDecision(DecisionKind.PROCEED, call.step_id, resources=touched)
            entries += [("step.allowed", n, rule), ("step.executing", n, said)]
        case Action.DENY:
            decision = StepDecision(
                DecisionKind.DENIED, call.step_id, reason=reason, rule_id=verdict.rule_id
            )
            entries.append(("step.denied", n, rule))
            made_progress(db, at)
        case Action.REQUIRE_APPROVAL:
            approval_id, requested = approvals.request(db, at.execution, n, verdict.approvers, now)
            decision = StepDecision(
                DecisionKind.BLOCKED,
                call.step_id,
                approval_id=approval_id,
                rule_id=verdict.rule_id,
            )
            entries += [("step.awaiting_approval", n, rule), requested]
            entries.append(suspension.block(db, at.execution, now))
    tables.append_events(db, at.execution, at.last_seq, entries, now.wall)
    return decision


_STATUS_AFTER = {
    Action.ALLOW: StepStatus.EXECUTING,
    Action.DENY: StepStatus.DENIED,
    Action.REQUIRE_APPROVAL: StepStatus.AWAITING_APPROVAL,
}


def _rule_detail(verdict: Verdict) -> str:
    """What the event of a verdict says besides its step; a denial's reason is in its error."""
    detail = {"rule_id": verdict.rule_id, "policy_hash": verdict.policy_hash}
    if verdict.action is not Action.DENY:
        detail["reason"] = verdict.reason
    return json.dumps({name: text for name, text in detail.items() if text})


def _meet(db: Connection, at: Standing, row: StepRow, call: Call, now: Moment) -> StepDecision:
    """A submit that meets a recorded step (protocol.md 7.3)."""
    at_most_once = call.proposal.idempotency == Idempotency.AT_MOST_ONCE
    match existing_step(row.status, at_most_once=at_most_once):
        case ExistingStep.REPLAY | ExistingStep.DENIED:
            return recorded(row.step_id, row.status, row.result, row.error, row.rule_id)
        case ExistingStep.INDETERMINATE:
            tables.settle_step(db, row.n, StepStatus.FAILED, now.wall, error=INDETERMINATE)
            resources.settled(db, at.execution, row.n)
            _append(db, at, "step.failed", row.n, now)
            made_progress(db, at)
            return StepDecision(DecisionKind.REPLAY, row.step_id, error_json=INDETERMINATE)
        case ExistingStep.START if row.tries and call.keeps_tries:
            # Its next try says itself when it begins; until then its body does not run.
            left = 0.0 if row.retry_due is None else max(row.retry_due - now.boottime, 0.0)
            touched, _ = _begin(db, at, row.n, call, 1)
            return StepDecision(
                DecisionKind.PROCEED,
                row.step_id,
                attempt=row.tries,
                retry_in=left,
                resources=touched,
            )
        case ExistingStep.START:
            touched, said = _begin(db, at, row.n, call, 1)
            tables.start_step(db, row.n, now.wall, now.boottime)
            _append(db, at, "step.executing", row.n, now, said)
            return StepDecision(DecisionKind.PROCEED, row.step_id, resources=touched)
        case ExistingStep.REPEAT:
            tries = row.tries if call.keeps_tries else 0
            touched, said = _begin(db, at, row.n, call, 1)
            if touched:
                _append(db, at, "step.executing", row.n, now, said)
            return StepDecision(DecisionKind.PROCEED, row.step_id, attempt=tries, resources=touched)
        case ExistingStep.BLOCKED:
            return StepDecision(
                DecisionKind.BLOCKED,
                row.step_id,
                approval_id=waiting.approval_of_step(db, row.n),
                rule_id=row.rule_id,
            )


def _begin(
    db: Connection, at: Standing, step: int, call: Call, offset: int
) -> tuple[tuple[Touched, ...], str | None]:
    proposal = call.proposal
    return resources.begin_step(
        db, at.execution, step, proposal.kind, proposal.resources, at.last_seq + offset
    )


def settle(
    db: Connection,
    lease: LeaseKey,
    step_id: str,
    now: Moment,
    *,
    result: str | None = None,
    error: str | None = None,
    told: Captures = NOTHING_CAPTURED,
    usage: Usage | None = None,
) -> StepDecision:
    """Record an outcome: ``result``, or ``error`` when that is given (protocol.md 8.1, 8.2).

    ``usage``: what the result tells of tokens; kept of a model call only (protocol.md 8.3).
    """
    at = fence.standing(db, lease, now)
    row = step_of(db, at, lease.execution_id, step_id)
    return settle_found(db, at, lease, row, now, result=result, error=error, usage=usage, told=told)


def step_of(db: Connection, at: Standing, execution_id: str, step_id: str) -> StepRow:
    row = tables.step(db, at.execution, step_id)
    if row is None:
        raise fence.not_found("step", f"{step_id} of execution {execution_id}")
    return row


def settle_found(
    db: Connection,
    at: Standing,
    lease: LeaseKey,
    row: StepRow,
    now: Moment,
    *,
    result: str | None = None,
    error: str | None = None,
    told: Captures = NOTHING_CAPTURED,
    usage: Usage | None = None,
) -> StepDecision:
    """As ``settle``, for a step that was looked up."""
    if at.status.terminal:
        return TERMINAL
    if row.status.terminal:
        return settled_already(row, failing=error is not None)
    if not accepts_outcome(row.status):
        raise wrong_status(row)
    fence.pass_check_fence(at, lease)
    status = StepStatus.SUCCEEDED if error is None else StepStatus.FAILED
    used = None
    if usage is not None and row.kind == StepKind.LLM_CALL:
        used = usage.model_dump_json()
    tables.settle_step(db, row.n, status, now.wall, result=result, error=error, usage=used)
    resources.settled(db, at.execution, row.n)
    entries: list[Entry] = [(f"step.{status}", row.n, f'{{"usage":{used}}}' if used else None)]
    entries += resources.captured(db, at.execution, told, at.last_seq + 1, own=row.n)
    tables.append_events(db, at.execution, at.last_seq, entries, now.wall)
    made_progress(db, at)
    return StepDecision(DecisionKind.RECORDED)


def settled_already(row: StepRow, *, failing: bool) -> StepDecision:
    """The answer to a second outcome: what was recorded, of the sort that was sent."""
    return StepDecision(
        DecisionKind.REPLAY,
        result_json=None if failing else row.result,
        error_json=row.error if failing else None,
    )


def wrong_status(row: StepRow) -> APIError:
    message = f"conflict: cannot record outcome for step in status {row.status}"
    return api_error("conflict", message, 409)


def _append(
    db: Connection,
    at: Standing,
    kind: str,
    step: int,
    now: Moment,
    detail: str | None = None,
) -> None:
    tables.append_events(db, at.execution, at.last_seq, [(kind, step, detail)], now.wall)


def made_progress(db: Connection, at: Standing) -> None:
    """Progress clears the strikes (design, Dispatches): only silent crashes exhaust a run."""
    if at.strikes and at.dispatch is not None:
        tables.clear_strikes(db, at.dispatch)


def answered_again(db: Connection, at: Standing, kept: StepDecision) -> StepDecision:
    """What a submit was answered, of which not all was kept."""
    decision, step_id = kept.decision, kept.step_id
    if decision in (DecisionKind.BLOCKED, DecisionKind.RATE_LIMITED) and not step_id:
        return replace(kept, reason=RATE_LIMIT_EXCEEDED)
    if decision not in _CONSUMES_PLACE:
        return kept
    row = tables.step(db, at.execution, step_id)
    assert row is not None
    if decision == DecisionKind.PROCEED:
        return replace(kept, resources=resources.told_again(db, at.execution, row.n))
    if decision == DecisionKind.BLOCKED:
        approval_id = waiting.approval_of_step(db, row.n)
        return replace(kept, approval_id=approval_id, rule_id=row.rule_id)
    return recorded(step_id, row.status, row.result, row.error, row.rule_id)
