"""The mutations that an agent elsewhere may ask for under its lease (protocol.md 2.2, 5.4, 17).

Each is a function of the transaction with its checks in the protocol's order. Several can share a
transaction (`batch`), so a refusal is raised before anything was written that has to be undone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from ..canonical import canonicalize
from ..errors import APIError, api_error
from ..types import (
    DecisionKind,
    DispatchStatus,
    ExecutionStatus,
    Idempotency,
    LeaseKey,
    Proposal,
    ResourceView,
    StepDecision,
    Usage,
    Wake,
)
from . import dispatches, executions, fence, identity, parking, steps, tries
from .moment import Moment
from .resources import NOTHING_CAPTURED, Captures
from .store import Connection, calls, queue, tables
from .store.rows import REMOTE, Standing
from .usage import usage_of

__all__ = [
    "DONE",
    "Answer",
    "Asked",
    "Beat",
    "End",
    "Operation",
    "Release",
    "Settle",
    "Silent",
    "Submit",
    "Suspend",
    "Try",
    "check_owner",
    "not_ended",
    "pass_fence",
    "standing",
]


class Asked(NamedTuple):
    """Who asks, under which lease."""

    lease: LeaseKey
    agent_id: str
    request_id: bytes = b""
    """Empty when the request has none (protocol.md 17, ``request-id``)."""
    content: bytes = b""
    """A hash of what is asked."""
    wants_notice: bool = False
    """Whether the agent named ``cancel-notice``."""
    keeps_tries: bool = False
    """Whether the agent named ``attempts``."""


class Answer(NamedTuple):
    status: int
    decision: StepDecision | None = None
    error: APIError | None = None
    view: ResourceView | None = None
    """What a registration is answered."""
    suspended: bool | None = None
    """Of a suspend alone."""

    @property
    def accepted(self) -> bool:
        return self.error is None

    @property
    def recorded(self) -> bool:
        """Whether a repetition has to get the same answer."""
        terminal = self.decision is not None and (
            self.decision.decision == DecisionKind.EXECUTION_TERMINAL
        )
        return self.accepted and not terminal


DONE = Answer(204)


class Operation(Protocol):
    @property
    def durable(self) -> bool:
        """Whether it must survive a loss of power before it is answered."""

    def apply(self, db: Connection, asked: Asked, now: Moment) -> Answer:
        """Check and do it."""

    def again(self, db: Connection, at: Standing, kept: StepDecision) -> Answer:
        """The answer that was given before, as it was kept: without recorded values."""

    def departs(self, answer: Answer) -> bool:
        """Whether, in a batch, what comes after must not be done on this answer."""


def standing(db: Connection, asked: Asked, now: Moment) -> Standing:
    """Where the lease stands for whoever asks.

    One that a process holds is no agent's elsewhere: its occurrences are counted in that process.
    Nor is it another runner's than the one that asked first: two handlers under one lease would
    each propose everything anew, and an `at_most_once` body would run twice.
    """
    at = fence.standing(db, asked.lease, now)
    is_theirs = at.owner in (None, REMOTE) and at.runner in (None, asked.lease.runner)
    return at if is_theirs else at._replace(attempt=0)


def check_owner(at: Standing, asked: Asked) -> None:
    if at.agent_id != asked.agent_id:
        raise api_error(
            "forbidden", f"forbidden: the execution is not one of agent {asked.agent_id!r}", 403
        )


def not_ended(db: Connection, asked: Asked, now: Moment) -> Standing:
    """``standing``, for the agent's own execution. Raises ``execution_terminal`` if it has ended
    (protocol.md 5.4)."""
    at = standing(db, asked, now)
    check_owner(at, asked)
    if at.status.terminal:
        raise fence.terminal_error(asked.lease.execution_id)
    return at


def pass_fence(db: Connection, at: Standing, asked: Asked, now: Moment) -> None:
    fence.pass_renew_fence(db, at, asked.lease, now)
    assert at.dispatch is not None
    if at.runner is None:
        calls.bind_runner(db, at.dispatch, asked.lease.runner)
    if asked.wants_notice and not at.wants_notice:
        queue.want_notice(db, at.dispatch)


@dataclass(frozen=True, slots=True)
class Submit:
    """Decide on an effect (protocol.md 7). ``invalid``: why its args are none."""

    proposal: Proposal
    args_hash: str
    invalid: APIError | None = None

    @classmethod
    def of(cls, proposal: Proposal) -> Submit:
        """Read the args now: not while the file is locked."""
        try:
            return cls(proposal, identity.args_hash(canonicalize(proposal.args)))
        except ValueError as error:
            message = f"validation error: invalid args: {error}"
            return cls(proposal, "", api_error("validation_error", message, 400))

    @property
    def durable(self) -> bool:
        return self.proposal.idempotency == Idempotency.AT_MOST_ONCE

    def apply(self, db: Connection, asked: Asked, now: Moment) -> Answer:
        at = standing(db, asked, now)
        check_owner(at, asked)
        if at.status.terminal:
            return Answer(200, steps.TERMINAL)
        pass_fence(db, at, asked, now)
        if self.invalid is not None:
            raise self.invalid
        assert at.dispatch is not None
        execution_id = asked.lease.execution_id
        place = (self.proposal.kind, self.proposal.target, self.args_hash)
        step_id = identity.step_id(execution_id, *place, 0)
        call = bytes.fromhex(step_id)
        occurrence = calls.next_occurrence(db, at.dispatch, call)
        if occurrence:
            step_id = identity.step_id(execution_id, *place, occurrence)
        decision = steps.decide(
            db,
            at,
            steps.Call(self.proposal, self.args_hash, occurrence, step_id, asked.keeps_tries),
            now,
        )
        if steps.consumes_place(decision):
            calls.set_next_occurrence(db, at.dispatch, call, occurrence + 1)
        return Answer(200, decision)

    def again(self, db: Connection, at: Standing, kept: StepDecision) -> Answer:
        return Answer(200, steps.answered_again(db, at, kept))

    def departs(self, answer: Answer) -> bool:
        return not answer.accepted


@dataclass(frozen=True, slots=True)
class Settle:
    """Record an outcome (protocol.md 8.1, 8.2): an error, or else a result, which may be absent."""

    step_id: str
    result: str | None = None
    error: str | None = None
    told: Captures = NOTHING_CAPTURED
    usage: Usage | None = None
    durable: ClassVar[bool] = True

    @classmethod
    def with_result(
        cls, step_id: str, result: str | None, told: Captures = NOTHING_CAPTURED
    ) -> Settle:
        """Read the result now: not while the file is locked."""
        return cls(step_id, result=result, usage=usage_of(result), told=told)

    def apply(self, db: Connection, asked: Asked, now: Moment) -> Answer:
        at = standing(db, asked, now)
        row = steps.step_of(db, at, asked.lease.execution_id, self.step_id)
        check_owner(at, asked)
        decision = steps.settle_found(
            db,
            at,
            asked.lease,
            row,
            now,
            result=self.result,
            error=self.error,
            usage=self.usage,
            told=self.told,
        )
        return Answer(200, decision)

    def again(self, db: Connection, at: Standing, kept: StepDecision) -> Answer:
        if kept.decision != DecisionKind.REPLAY:
            return Answer(200, kept)
        row = tables.step(db, at.execution, self.step_id)
        assert row is not None
        return Answer(200, steps.settled_already(row, failing=self.error is not None))

    def departs(self, answer: Answer) -> bool:
        decision = answer.decision
        if decision is None or decision.decision != DecisionKind.REPLAY:
            return not answer.accepted
        if self.error is not None:
            return not _same(decision.error_json, self.error)
        return not _same(decision.result_json, self.result)


@dataclass(frozen=True, slots=True)
class Try:
    """A try of a step (protocol.md 17, ``attempts``): with an error, it failed and is followed by
    another in ``retry_in`` seconds; without one, it begins."""

    step_id: str
    attempt: int
    error: str | None
    retry_in: float
    durable: ClassVar[bool] = True

    def apply(self, db: Connection, asked: Asked, now: Moment) -> Answer:
        at = standing(db, asked, now)
        row = steps.step_of(db, at, asked.lease.execution_id, self.step_id)
        check_owner(at, asked)
        if self.error is None:
            decision = tries.begun(db, at, asked.lease, row, now, attempt=self.attempt)
        else:
            decision = tries.failed(
                db,
                at,
                asked.lease,
                row,
                now,
                attempt=self.attempt,
                error=self.error,
                retry_in=self.retry_in,
            )
        return Answer(200, decision)

    def again(self, db: Connection, at: Standing, kept: StepDecision) -> Answer:
        return Settle(self.step_id, error="null").again(db, at, kept)

    def departs(self, answer: Answer) -> bool:
        return not answer.accepted


def _same(recorded: str | None, sent: str | None) -> bool:
    if recorded == sent:
        return True
    if recorded is None or sent is None:
        return False
    try:
        return canonicalize(recorded) == canonicalize(sent)
    except ValueError:
        return False


class Silent:
    """An operation whose answer says nothing but that it was done."""

    __slots__ = ()

    def again(self, db: Connection, at: Standing, kept: StepDecision) -> Answer:
        return DONE

    def departs(self, answer: Answer) -> bool:
        return not answer.accepted


@dataclass(frozen=True, slots=True)
class End(Silent):
    """Complete or fail the execution (protocol.md 9.4)."""

    status: ExecutionStatus
    output: str | None = None
    reason: str = ""
    state: str | None = None
    durable: ClassVar[bool] = True

    def apply(self, db: Connection, asked: Asked, now: Moment) -> Answer:
        at = not_ended(db, asked, now)
        pass_fence(db, at, asked, now)
        executions.end(
            db,
            at.execution,
            self.status,
            now,
            output=self.output,
            reason=self.reason,
            state=self.state,
        )
        return DONE


@dataclass(frozen=True, slots=True)
class Suspend:
    """Park the execution until nothing of it waits any more (protocol.md 9.7), or until the sleep
    that a step is has lasted (17, ``wake``)."""

    wake: Wake | None = None
    durable: ClassVar[bool] = False

    def apply(self, db: Connection, asked: Asked, now: Moment) -> Answer:
        at = not_ended(db, asked, now)
        pass_fence(db, at, asked, now)
        return Answer(200, suspended=parking.suspend(db, at, self.wake, now))

    def again(self, db: Connection, at: Standing, kept: StepDecision) -> Answer:
        # The attempt is still the newest of its dispatch, so nobody else has retired it.
        return Answer(200, suspended=at.dispatch_status is DispatchStatus.EXHAUSTED)

    def departs(self, answer: Answer) -> bool:
        return not answer.accepted


@dataclass(frozen=True, slots=True)
class Beat(Silent):
    """Renew the lease. There is no terminal test (protocol.md 5.4)."""

    durable: ClassVar[bool] = False

    def apply(self, db: Connection, asked: Asked, now: Moment) -> Answer:
        at = standing(db, asked, now)
        check_owner(at, asked)
        pass_fence(db, at, asked, now)
        return DONE


@dataclass(frozen=True, slots=True)
class Release(Silent):
    """Give the lease back (protocol.md 17)."""

    interrupted: bool
    strike: bool
    random: float
    durable: ClassVar[bool] = False

    def apply(self, db: Connection, asked: Asked, now: Moment) -> Answer:
        at = not_ended(db, asked, now)
        if not fence.holds(at, asked.lease, renewing=True):
            raise fence.superseded_error(asked.lease)
        dispatches.release(
            db,
            asked.lease,
            interrupted=self.interrupted,
            strike=self.strike,
            random=self.random,
            now=now,
        )
        return DONE
