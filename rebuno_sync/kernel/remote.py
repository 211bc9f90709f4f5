"""``RemotePort``: what agents elsewhere ask of this kernel, whatever wire it came on.

Their requests may reach any process that serves the file, also after a restart, so nothing of a
lease is kept in memory: its occurrences are counted in the file, in the step's own transaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TypeVar

from ..errors import APIError, api_error
from ..ports import Clock
from ..types import LeaseKey, StepDecision
from . import fence, unfenced
from .moment import Moment
from .operations import (
    Answer,
    Asked,
    Beat,
    End,
    Operation,
    Release,
    Submit,
    Suspend,
    check_owner,
    standing,
)
from .store import Connection, Store, calls
from .store.rows import Standing

__all__ = ["RemotePort"]

T = TypeVar("T")


class RemotePort:
    """Rules for agents elsewhere. The wire has authenticated them and read what they sent."""

    def __init__(self, store: Callable[[], Store], clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def perform(self, asked: Asked, operations: Sequence[Operation]) -> list[Answer]:
        """Do them in order in one transaction, up to the first on whose answer no more may follow.

        Refusals are answers. Under a request id that was used before, the answers of then.
        """
        now = Moment.of(self._clock)
        store = self._store()
        answers = store.write(
            lambda db: _perform(db, asked, operations, now),
            durable=any(operation.durable for operation in operations),
        )
        if any(isinstance(operation, Release | End | Suspend) for operation in operations):
            store.work_queued()  # Of this execution, or of one that has waited for it.
        return answers

    def renew(self, agent_id: str, leases: Sequence[LeaseKey], *, wants_notice: bool) -> list[int]:
        """Renew many leases; the indexes of those that are gone (protocol.md 17, ``leases``)."""
        now = Moment.of(self._clock)

        def work(db: Connection) -> list[int]:
            return [
                index
                for index, lease in enumerate(leases)
                if not _renewed(db, Asked(lease, agent_id, wants_notice=wants_notice), now)
            ]

        return self._store().write(work, durable=False) if leases else []


def _renewed(db: Connection, asked: Asked, now: Moment) -> bool:
    try:
        Beat().apply(db, asked, now)
    except APIError:
        return False
    return True


def _perform(
    db: Connection, asked: Asked, operations: Sequence[Operation], now: Moment
) -> list[Answer]:
    at = _matched(db, asked, operations, now) if asked.request_id else None
    if at is not None and at.dispatch is not None:
        kept = calls.answered(db, at.dispatch, asked.request_id)
        if kept is not None:
            return _answers_again(db, asked, operations, at, *kept)
    answers: list[Answer] = []
    for operation in operations:
        try:
            if asked.lease.attempt == unfenced.UNNAMED:
                answer = unfenced.perform(db, operation, asked, now)
            else:
                answer = operation.apply(db, asked, now)
        except APIError as error:
            # Raised before it wrote anything but an end by the deadline or a renewal, which stand.
            answer = Answer(error.status_code, error=error)
        answers.append(answer)
        if operation.departs(answer):
            break
    if at is not None and at.dispatch is not None and any(a.recorded for a in answers):
        texts = json.dumps([_kept(answer) for answer in answers])
        calls.put_answered(db, at.dispatch, asked.request_id, asked.content, texts)
    return answers


def _matched(
    db: Connection, asked: Asked, operations: Sequence[Operation], now: Moment
) -> Standing | None:
    """Where the attempt stands, when it is the newest and what it asked may have been answered.

    A submit of an execution that has ended is told so, whatever it was told before.
    """
    try:
        at = standing(db, asked, now)
        check_owner(at, asked)
    except APIError:
        return None  # The operation says so itself.
    ended = at.status.terminal and any(isinstance(operation, Submit) for operation in operations)
    return at if fence.holds(at, asked.lease, renewing=False) and not ended else None


_Kept = tuple[int, str, str, int, float, str, str]
"""Status, decision, step id, failed tries and back-off; code and message of an error."""


def _kept(answer: Answer) -> _Kept:
    decision, error = answer.decision, answer.error
    if error is not None:
        return answer.status, "", "", 0, 0.0, error.code, error.message
    if decision is None:
        return answer.status, "", "", 0, 0.0, "", ""
    told = decision.decision, decision.step_id, decision.attempt, decision.retry_in
    return answer.status, *told, "", ""


def _answers_again(
    db: Connection,
    asked: Asked,
    operations: Sequence[Operation],
    at: Standing,
    content: bytes,
    answers: str,
) -> list[Answer]:
    if content != asked.content:
        message = "validation error: this Rebuno-Request-Id was used for another request"
        raise api_error("validation_error", message, 400)
    kept: list[_Kept] = json.loads(answers)
    return [
        Answer(status, error=api_error(code, message, status))
        if code
        else operation.again(
            db, at, StepDecision(decision, step_id, attempt=attempt, retry_in=retry_in)
        )
        for operation, (status, decision, step_id, attempt, retry_in, code, message) in zip(
            operations, kept, strict=False
        )
    ]
