"""``AgentPort``: what an execution in this process asks of its kernel (``ports.AgentKernel``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TypeVar

from ..canonical import canonicalize
from ..errors import ConflictError, StorageError, api_error
from ..ports import Clock, ResourceKernel
from ..types import (
    DecisionKind,
    Delta,
    Execution,
    ExecutionStatus,
    Idempotency,
    LeaseKey,
    Proposal,
    Recorded,
    Renewal,
    Spawn,
    Step,
    StepDecision,
    Wake,
)
from . import dispatches, executions, fence, identity, parking, steps, tries
from .attempts import Attempt
from .executions import Wanted
from .moment import Moment
from .reading import read_on_time
from .records import Records
from .resource_port import ResourcePort
from .store import Connection, Store, tables
from .store.earlier import recorded_steps
from .store.rows import Standing, StepRow
from .streams import Deltas
from .usage import usage_of
from .views import execution_view, step_view

__all__ = ["AgentPort"]

T = TypeVar("T")

_RENEWAL_PATIENCE_SECONDS = 1.0
"""One thread renews the leases of every kernel: it must not hang on one file."""


class AgentPort:
    """An ``AgentKernel`` without a wire: calls into the embedded kernel of this process."""

    wants_request_ids = False
    renews_together = True
    keeps_tries = True
    takes_deltas = True
    parks = True
    takes_leases_back = True

    def __init__(
        self, store: Callable[[], Store], clock: Clock, records: Records, deltas: Deltas
    ) -> None:
        self._store = store
        self._clock = clock
        self._records = records
        self._deltas = deltas
        self.resources: ResourceKernel = ResourcePort(store, clock)

    def get_execution(self, execution_id: str) -> Execution:
        return execution_view(self._read(lambda db: executions.get(db, execution_id)))

    def list_steps(self, execution_id: str) -> list[Step]:
        def work(db: Connection) -> list[Step]:
            rows = tables.steps(db, executions.get(db, execution_id).n)
            return [step_view(execution_id, row) for row in rows]

        return self._read(work)

    def recorded(self, execution_id: str) -> list[Recorded]:
        now = Moment.of(self._clock)
        return self._store().read(
            lambda db: recorded_steps(db, execution_id, now.wall, now.boottime)
        )

    def wall(self) -> int:
        return self._clock.wall()

    def _read(self, work: Callable[[Connection], T]) -> T:
        return read_on_time(self._store(), self._clock, work)

    def submit(self, lease: LeaseKey, proposal: Proposal) -> StepDecision:
        store = self._store()
        attempt = store.attempts.get(lease)
        if attempt is None:
            return self._refuse(lease)
        if not proposal.args:
            proposal = proposal._replace(args="null", canonical=True)
        canonical = proposal.args if proposal.canonical else _canonical(proposal.args)
        args_hash = identity.args_hash(canonical)
        place = (proposal.kind, proposal.target, args_hash)
        consumed = False
        try:
            occurrence = attempt.take_turn(place)
            step_id = identity.step_id(lease.execution_id, *place, occurrence)
            call = steps.Call(proposal, args_hash, occurrence, step_id)
            decision = self._decide(store, lease, call, attempt)
            consumed = steps.consumes_place(decision)
            if consumed and decision.decision != DecisionKind.PROCEED:
                attempt.pass_over(
                    step_id,
                    lambda: store.read(lambda db: steps.enclosed_ahead(db, lease.execution_id)),
                )
        except ConflictError:
            store.attempts.end(lease)
            raise
        finally:
            attempt.end_turn(place, consumed=consumed)
        if decision.decision in (DecisionKind.EXECUTION_TERMINAL, DecisionKind.BLOCKED):
            store.attempts.end(lease)
            store.work_queued()  # A timer may be due before anything else.
        return decision

    def _decide(
        self, store: Store, lease: LeaseKey, call: steps.Call, attempt: Attempt
    ) -> StepDecision:
        now = Moment.of(self._clock)
        if attempt.may_meet_recorded and not attempt.overdue(now):
            mark = store.database.generation
            recorded = attempt.meet(
                call.step_id, mark, lambda: store.read(lambda db: steps.settled_ahead(db, lease))
            )
            if recorded is not None:
                return recorded
            recorded = store.read(lambda db: steps.look_up(db, lease, call.step_id))
            if recorded is not None:
                attempt.met_recorded(mark)
                return recorded
        return store.write(
            lambda db: steps.submit(db, lease, call, now),
            durable=call.proposal.idempotency == Idempotency.AT_MOST_ONCE,
        )

    def _refuse(self, lease: LeaseKey) -> StepDecision:
        """This process does not hold the lease: say why, in the protocol's order."""
        at = self._read(lambda db: tables.standing(db, lease))
        if at is None:
            raise fence.not_found("execution", lease.execution_id)
        if at.status.terminal:
            return StepDecision(DecisionKind.EXECUTION_TERMINAL)
        raise fence.superseded_error(lease)

    def complete_step(self, lease: LeaseKey, step_id: str, result: str) -> StepDecision:
        return self._settle(lease, step_id, result=result)

    def fail_step(self, lease: LeaseKey, step_id: str, error: str) -> StepDecision:
        return self._settle(lease, step_id, error=error)

    def _settle(
        self,
        lease: LeaseKey,
        step_id: str,
        *,
        result: str | None = None,
        error: str | None = None,
    ) -> StepDecision:
        now = Moment.of(self._clock)
        usage = usage_of(result)
        store = self._store()
        decision = store.write(
            lambda db: steps.settle(
                db, lease, step_id, now, result=result, error=error, usage=usage
            ),
            durable=True,
        )
        if decision.decision is DecisionKind.EXECUTION_TERMINAL:
            store.attempts.end(lease)
        return decision

    def retrying(
        self, lease: LeaseKey, step_id: str, attempt: int, error: str, retry_in: float
    ) -> StepDecision:
        def work(db: Connection, at: Standing, row: StepRow, now: Moment) -> StepDecision:
            return tries.failed(
                db, at, lease, row, now, attempt=attempt, error=error, retry_in=retry_in
            )

        return self._try(lease, step_id, work)

    def begin_try(self, lease: LeaseKey, step_id: str, attempt: int) -> StepDecision:
        return self._try(
            lease,
            step_id,
            lambda db, at, row, now: tries.begun(db, at, lease, row, now, attempt=attempt),
        )

    def _try(
        self,
        lease: LeaseKey,
        step_id: str,
        work: Callable[[Connection, Standing, StepRow, Moment], StepDecision],
    ) -> StepDecision:
        now = Moment.of(self._clock)

        def on_step(db: Connection) -> StepDecision:
            at = fence.standing(db, lease, now)
            return work(db, at, steps.step_of(db, at, lease.execution_id, step_id), now)

        store = self._store()
        decision = store.write(on_step, durable=True)
        if decision.decision is DecisionKind.EXECUTION_TERMINAL:
            store.attempts.end(lease)
        return decision

    def delta(self, lease: LeaseKey, step_id: str, seq: int, data: str) -> None:
        """Publish a piece of what a step that runs receives (protocol.md 8.4)."""
        self._deltas.publish(lease, Delta(step_id, seq, data))

    def renew(self, leases: Sequence[LeaseKey]) -> list[Renewal]:
        now = Moment.of(self._clock)
        try:
            store = self._store()
            held = store.write(
                lambda db: [dispatches.renew(db, lease, now) for lease in leases],
                durable=False,
                patience=_RENEWAL_PATIENCE_SECONDS,
            )
        except StorageError:
            return [Renewal.UNKNOWN] * len(leases)
        for lease, alive in zip(leases, held, strict=True):
            if not alive:
                store.attempts.end(lease)
        return [Renewal.ACCEPTED if alive else Renewal.SUPERSEDED for alive in held]

    def complete(self, lease: LeaseKey, output: str, state: str | None = None) -> None:
        self._end(lease, ExecutionStatus.COMPLETED, output=output, state=state)

    def fail(self, lease: LeaseKey, reason: str) -> None:
        self._end(lease, ExecutionStatus.FAILED, reason=reason)

    def _end(
        self,
        lease: LeaseKey,
        status: ExecutionStatus,
        *,
        output: str | None = None,
        reason: str = "",
        state: str | None = None,
    ) -> None:
        now = Moment.of(self._clock)

        def work(db: Connection) -> bool:
            at = fence.standing(db, lease, now)
            if at.status.terminal:
                return False  # An exception would undo an end by the deadline, just now.
            fence.pass_renew_fence(db, at, lease, now)
            executions.end(db, at.execution, status, now, output=output, reason=reason, state=state)
            return True

        store = self._store()
        try:
            lived = store.write(work, durable=True)
        except ConflictError:
            store.attempts.end(lease)
            raise
        store.attempts.end(lease)
        store.work_queued()  # Of an execution that has waited for this one.
        if not lived:
            raise fence.terminal_error(lease.execution_id)

    # -- waiting

    def suspend(self, lease: LeaseKey, wake: Wake | None = None) -> bool:
        now = Moment.of(self._clock)

        def work(db: Connection) -> bool | None:
            at = fence.standing(db, lease, now)
            if at.status.terminal:
                return None
            fence.pass_renew_fence(db, at, lease, now)
            return parking.suspend(db, at, wake, now)

        store = self._store()
        suspended = store.write(work, durable=False)
        if suspended is not False:
            store.attempts.end(lease)
            store.work_queued()  # It may be due before anything else.
        if suspended is None:
            raise fence.terminal_error(lease.execution_id)
        return suspended

    def spawn(self, lease: LeaseKey, spawn: Spawn) -> Execution:
        wanted = Wanted(
            spawn.agent_id,
            spawn.input_json,
            session=spawn.session or None,
            spawner=(lease.execution_id, spawn.step_id),
        )
        return execution_view(self._records.create(wanted))

    def get_step(self, execution_id: str, step_id: str) -> Step:
        return step_view(execution_id, self._records.step(execution_id, step_id))

    def previous(self, execution_id: str) -> object:
        return json.loads(self._records.left_behind(execution_id))

    def release(self, lease: LeaseKey, *, interrupted: bool = False, strike: bool = True) -> None:
        now, random = Moment.of(self._clock), self._clock.random()
        store = self._store()
        store.attempts.end(lease)
        lives = store.write(
            lambda db: dispatches.release(
                db, lease, interrupted=interrupted, strike=strike, random=random, now=now
            ),
            durable=False,
        )
        if not lives:
            raise fence.terminal_error(lease.execution_id)
        store.work_queued()


def _canonical(args: str) -> str:
    try:
        return canonicalize(args)
    except ValueError as error:
        raise api_error(
            "validation_error", f"validation error: invalid args: {error}", 400
        ) from error
