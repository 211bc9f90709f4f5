"""Outcomes that travel with the next request of their attempt (``batch`` of protocol.md 17).

The result of an effect that may be repeated is held for at most 2 ms: the next submit, or the end,
takes it along in one request, in order. The handler goes on meanwhile, under one rule: no body
starts, no other outcome is sent and nothing is ended before the kernel has taken what is held.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from .clock import SYSTEM
from .errors import APIError, Interrupted, NetworkError, api_error
from .failures import not_storable
from .heartbeat import Lease
from .held import Held, Request, size_of
from .kernel_client import Answer, KernelClient, NotOffered
from .messages import completion_body, decision_of, submit_operation
from .ports import ResourceKernel
from .replies import asks_for_patience, error_of, refuses_the_value
from .resource_calls import AfterOutcomes
from .sender import Sender
from .types import (
    LARGEST_BATCH,
    DecisionKind,
    Idempotency,
    LeaseKey,
    Proposal,
    StepDecision,
    StepKind,
    Wake,
)

__all__ = ["Outbox"]

T = TypeVar("T")

_LARGEST_TOGETHER = 1024 * 1024
"""Characters of one operation; a larger one travels alone."""
_OUTCOME_TRIES = 3
_RECORDED = StepDecision(DecisionKind.RECORDED)
_OVER = ("lease_superseded", "execution_terminal")


class Outbox:
    """The kernel of one attempt, which takes results along. A plain ``KernelClient`` where its
    kernel knows no batches. Thread-safe.

    What the kernel offers is taken from ``kernel`` once: a later delivery may name less (a proxy
    strips the header), and what is held, or was sent under an id, must not come into doubt by it.
    A held result that the kernel refuses for good is recorded as a failure of its step; the
    handler has gone on with it, so every later call raises ``Interrupted``.
    """

    takes_deltas = True

    def __init__(self, kernel: KernelClient, lease: Lease, sender: Sender) -> None:
        self._kernel = kernel
        self._lease = lease
        self._sender = sender
        self._asks_with_ids = kernel.wants_request_ids
        self._batches = kernel.batches
        self._keeps_tries = kernel.keeps_tries
        self._repeatable: set[str] = set()
        self._held: deque[Held] = deque()
        self._lost: dict[str, Request] = {}
        self._sending = threading.Lock()
        self._broken: APIError | str | None = None
        # What has nothing to do with what is held back.
        self.parks = kernel.parks
        self.renews_together = kernel.renews_together
        self.takes_leases_back = kernel.takes_leases_back
        self.recorded, self.wall, self.renew = kernel.recorded, kernel.wall, kernel.renew
        self.get_execution, self.list_steps = kernel.get_execution, kernel.list_steps
        self.resources: ResourceKernel = AfterOutcomes(kernel.resources, self.flush)
        self.get_step, self.previous, self.spawn = kernel.get_step, kernel.previous, kernel.spawn
        self.delta = kernel.delta

    @property
    def wants_request_ids(self) -> bool:
        return self._asks_with_ids

    @property
    def keeps_tries(self) -> bool:
        return self._keeps_tries

    # -- what may travel with something

    def submit(self, lease: LeaseKey, proposal: Proposal) -> StepDecision:
        decision = self._submit(lease, proposal)
        if decision.decision == DecisionKind.PROCEED:
            if self._batches and _may_be_held(proposal):
                self._repeatable.add(decision.step_id)
            if self._held or self._broken:  # By another thread; no body starts before it.
                self._lease.insist(self.flush)
                self._raise_if_broken()
        self._lost.pop(proposal.request_id, None)
        return decision

    def _submit(self, lease: LeaseKey, proposal: Proposal) -> StepDecision:
        """Send the submit, or the request whose answer was lost, with what is held if it can."""
        request = self._lost.get(proposal.request_id)
        again = request is not None
        if request is None:
            request = self._compose(proposal)
        if request.id:
            self._lost[proposal.request_id] = request
        try:
            if request.held:
                with self._sending:
                    answer = self._send_together(
                        request.held, submit_operation(proposal), request.id, again=again
                    )
                if answer is not None:
                    return decision_of(answer.body)
                self._raise_if_broken()
                # It was not reached, and its id stands for that.
                request = self._lost[proposal.request_id] = Request(str(SYSTEM.new_id()))
            return self._kernel.submit(lease, proposal._replace(request_id=request.id))
        except (APIError, Interrupted):
            self._lost.pop(proposal.request_id, None)
            raise

    def _compose(self, proposal: Proposal) -> Request:
        if self._held or self._sending.locked() or self._broken is not None:
            with self._sending:
                self._raise_if_broken()
                together: tuple[Held, ...] = ()
                if self._batches and len(proposal.args) <= _LARGEST_TOGETHER:
                    together = self._portion()
                else:
                    self._insist_on_held()
                self._raise_if_broken()
                return Request(proposal.request_id, together)
        return Request(proposal.request_id)

    def complete_step(self, lease: LeaseKey, step_id: str, result: str) -> StepDecision:
        holds = self._batches and len(result) <= _LARGEST_TOGETHER // 8
        if step_id in self._repeatable and holds:
            self._repeatable.discard(step_id)
            self._raise_if_over()
            self._held.append(Held(step_id, result))
            self._sender.look_after(self)
            return _RECORDED
        return self._with_held(
            lambda: Held(step_id, result).operation,
            len(result),
            lambda: self._kernel.complete_step(lease, step_id, result),
            decision_of,
        )

    def fail_step(self, lease: LeaseKey, step_id: str, error: str) -> StepDecision:
        return self._with_held(
            lambda: f'{{"op":"fail_step","step_id":"{step_id}","error":{error}}}',
            len(error),
            lambda: self._kernel.fail_step(lease, step_id, error),
            decision_of,
        )

    def complete(self, lease: LeaseKey, output: str, state: str | None = None) -> None:
        self._with_held(
            lambda: f'{{"op":"complete",{completion_body(output, state)[1:]}',
            len(output) + len(state or ""),
            lambda: self._kernel.complete(lease, output, state),
            lambda _: None,
            ends=True,
        )

    def fail(self, lease: LeaseKey, reason: str) -> None:
        self._with_held(
            lambda: f'{{"op":"fail","error":{json.dumps(reason)}}}',
            len(reason),
            lambda: self._kernel.fail(lease, reason),
            lambda _: None,
            ends=True,
        )

    def retrying(
        self, lease: LeaseKey, step_id: str, attempt: int, error: str, retry_in: float
    ) -> StepDecision:
        return self._tell(lambda: self._kernel.retrying(lease, step_id, attempt, error, retry_in))

    def begin_try(self, lease: LeaseKey, step_id: str, attempt: int) -> StepDecision:
        return self._tell(lambda: self._kernel.begin_try(lease, step_id, attempt))

    def _tell(self, of_a_try: Callable[[], StepDecision]) -> StepDecision:
        self.flush()
        self._raise_if_broken()
        try:
            return of_a_try()
        except NotOffered:
            self._keeps_tries = False
            raise

    def release(self, lease: LeaseKey, *, interrupted: bool = False, strike: bool = True) -> None:
        self.flush()
        self._kernel.release(lease, interrupted=interrupted, strike=strike)

    def suspend(self, lease: LeaseKey, wake: Wake | None = None) -> bool:
        self.flush()
        self._raise_if_broken()
        return self._kernel.suspend(lease, wake)

    # -- sending

    @property
    def held_since(self) -> float | None:
        try:
            return self._held[0].since
        except IndexError:
            return None

    @property
    def lease(self) -> Lease:
        return self._lease

    def flush(self) -> None:
        """Send what is held. Raises ``NetworkError`` when its fate is unknown: it is still held."""
        with self._sending:
            self._send_held()

    def try_flush(self) -> bool:
        """``flush``, unless a request with outcomes is under way; whether it did."""
        if not self._sending.acquire(blocking=False):
            return False
        try:
            self._send_held()
        finally:
            self._sending.release()
        return True

    def _with_held(
        self,
        operation: Callable[[], str],
        size: int,
        alone: Callable[[], T],
        read: Callable[[Any], T],
        *,
        ends: bool = False,
    ) -> T:
        """Send an operation, with what is held before it in the same request.

        ``ends``: it ends the execution. An outcome is sent though the attempt is given up: its
        body has run, and the next attempt need not do it again.
        """
        check = self._raise_if_broken if ends else self._raise_if_over
        if self._held or self._sending.locked() or self._broken is not None:
            # The lock is kept over the exchange: a later request must not overtake what is held.
            with self._sending:
                check()
                if self._held and self._batches and size <= _LARGEST_TOGETHER:
                    together = self._portion()
                    check()
                    answer = self._send_together(together, operation())
                    if answer is not None:
                        return read(answer.body)
                else:
                    self._send_held()
                check()
        return alone()

    def _portion(self) -> tuple[Held, ...]:
        """What is held, as far as it fits into one request: the rest, of which there may be much
        after an outage, is sent first."""
        while len(self._held) >= LARGEST_BATCH or size_of(self._held) > _LARGEST_TOGETHER:
            self._lease.insist(self._send_first)
        return tuple(self._held)

    def _send_together(
        self, held: Sequence[Held], operation: str, request_id: str = "", *, again: bool = False
    ) -> _Success | None:
        """Send ``held`` and ``operation``; its answer, or ``None`` if it was not reached.

        Raises the kernel's refusal of ``operation``. ``again``: it may have been done before, by
        the same request whose answer was lost.
        """
        operations = [*(one.operation for one in held), operation]
        try:
            answers = self._kernel.batch(self._lease.key, operations, request_id)
        except (APIError, NotOffered) as refusal:
            if isinstance(refusal, NotOffered):
                self._batches = False
            elif refusal.code in _OVER:
                raise
            if again:
                raise NetworkError(f"whether it was done before is unknown: {refusal}") from refusal
            self._insist_on_held()  # Nothing of it was done, so each by itself.
            return None
        for one, answer in zip(held, answers, strict=False):
            if answer.status >= 300:
                self._refused(one, _refusal(answer))
                self._insist_on_held()
                return None
            self._taken(one, decision_of(answer.body))
            if self._broken is not None:
                return None
        if len(answers) <= len(held):
            return None
        last = answers[len(held)]
        if last.status >= 300:
            raise _refusal(last)
        return _Success(last.body)

    def _insist_on_held(self) -> None:
        """Send what is held, again where an answer is lost: that never records one twice."""
        self._lease.insist(self._send_held)

    def _send_held(self) -> None:
        """Send each of what is held, one by one, until it is taken or refused for good."""
        while self._held:
            self._send_first()

    def _send_first(self) -> None:
        one = self._held[0]
        try:
            decision = self._kernel.complete_step(self._lease.key, one.step_id, one.result)
        except APIError as refusal:
            if asks_for_patience(refusal):
                raise NetworkError(f"it is not taken yet: {refusal}") from refusal
            self._refused(one, refusal)
        else:
            self._taken(one, decision)

    def _taken(self, one: Held, decision: StepDecision) -> None:
        self._forget(one)
        if decision.decision == DecisionKind.EXECUTION_TERMINAL:
            message = f"the execution ended before step {one.step_id} was recorded"
            self._break(api_error("execution_terminal", message, 409))
        elif decision.decision == DecisionKind.REPLAY and not one.is_what(decision):
            message = f"another attempt settled step {one.step_id} in another way"
            self._break(api_error("lease_superseded", message, 409))

    def _forget(self, one: Held) -> None:
        if one in self._held:  # Else it was sent meanwhile, beside a request that was lost.
            self._held.remove(one)

    def _refused(self, one: Held, refusal: APIError) -> None:
        """Ask again; after three refusals of the result record that it cannot be stored."""
        if refusal.code in _OVER:
            self._break(refusal)
            return
        if one not in self._held:  # The answer is an old one: it was settled meanwhile.
            return
        if asks_for_patience(refusal):  # ``_send_first`` does.
            return
        if refuses_the_value(refusal):
            one.refusals += 1
            if one.refusals < _OUTCOME_TRIES:
                return
            failure = not_storable(one.result, f"not storable by this kernel: {refusal}")
            try:
                self._kernel.fail_step(self._lease.key, one.step_id, failure)
            except APIError as error:
                refusal = error
        self._forget(one)
        self._break(f"the kernel refused the result of step {one.step_id}: {refusal}")

    def _break(self, why: APIError | str) -> None:
        """This attempt goes on with something that is not recorded: it must stop."""
        self._broken = self._broken or why
        if isinstance(why, APIError):  # It is over, and nothing of it is taken any more.
            self._held.clear()

    def _raise_if_over(self) -> None:
        """Raise when the kernel takes nothing more of this attempt."""
        broken = self._broken
        if isinstance(broken, APIError):
            raise api_error(broken.code, broken.message, broken.status_code)

    def _raise_if_broken(self) -> None:
        """Raise when no further effect may start and nothing may be ended."""
        self._raise_if_over()
        if isinstance(self._broken, str):
            raise Interrupted(self._broken)


class _Success(NamedTuple):
    body: Any


def _may_be_held(proposal: Proposal) -> bool:
    safe = proposal.idempotency == Idempotency.SAFE_TO_RETRY
    return safe and proposal.kind != StepKind.LLM_CALL


def _refusal(answer: Answer) -> APIError:
    error = error_of(answer.status, json.dumps(answer.body).encode(), "an operation of a batch")
    if isinstance(error, NetworkError):
        raise error
    return error
