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
from .kernel_client import Answer, KernelClient, decision_of
from .replies import error_of
from .sender import Sender
from .types import (
    DecisionKind,
    Execution,
    Idempotency,
    LeaseKey,
    Proposal,
    Renewal,
    Step,
    StepDecision,
    StepKind,
)

__all__ = ["Outbox"]

T = TypeVar("T")

_LARGEST_TOGETHER = 1024 * 1024
"""Characters of one operation; a larger one travels alone."""
_OUTCOME_TRIES = 3
_RECORDED = StepDecision(DecisionKind.RECORDED)
_OVER = ("lease_superseded", "execution_terminal")


class _Held:
    """A result that the handler takes for recorded, and the kernel has still to take."""

    def __init__(self, step_id: str, result: str) -> None:
        self.step_id = step_id
        self.result = result
        self.refusals = 0

    @property
    def operation(self) -> str:
        return f'{{"op":"complete_step","step_id":"{self.step_id}","result":{self.result}}}'


class Outbox:
    """The kernel of one attempt, which takes results along. A plain ``KernelClient`` as far as
    its kernel knows no batches. Thread-safe.

    A held result that the kernel refuses for good is recorded as a failure of its step; the
    handler has gone on with it, so every later call raises ``Interrupted``.
    """

    def __init__(self, kernel: KernelClient, lease: Lease, sender: Sender) -> None:
        self._kernel = kernel
        self._lease = lease
        self._sender = sender
        self._repeatable: set[str] = set()
        self._held: deque[_Held] = deque()
        self._lost: dict[str, _Request] = {}
        self._sending = threading.Lock()
        self._broken: APIError | str | None = None

    @property
    def wants_request_ids(self) -> bool:
        return self._kernel.wants_request_ids

    @property
    def renews_together(self) -> bool:
        return self._kernel.renews_together

    @property
    def takes_deltas(self) -> bool:
        return self._kernel.takes_deltas

    # -- what may travel with something

    def submit(self, lease: LeaseKey, proposal: Proposal) -> StepDecision:
        if not self.wants_request_ids:
            return self._kernel.submit(lease, proposal)
        decision = self._submit(lease, proposal)
        self._lost.pop(proposal.request_id, None)
        if decision.decision == DecisionKind.PROCEED:
            if _may_be_held(proposal):
                self._repeatable.add(decision.step_id)
            if self._held or self._broken:  # By another thread; no body starts before it.
                self._lease.insist(self.flush)
                self._raise_if_broken()
        return decision

    def _submit(self, lease: LeaseKey, proposal: Proposal) -> StepDecision:
        """Send the submit, or the very request whose answer was lost, with what is held if it
        can."""
        request = self._lost.get(proposal.request_id)
        if request is None:
            request = self._compose(proposal)
        if request.held and not self._kernel.batches:
            request = _Request(str(SYSTEM.new_id()))
        self._lost[proposal.request_id] = request
        try:
            if request.held:
                with self._sending:
                    answer = self._send_together(request.held, _submit(proposal), request.id)
                if answer is not None:
                    return decision_of(answer.body)
                self._raise_if_broken()
                # It was not reached, and its id stands for that.
                request = self._lost[proposal.request_id] = _Request(str(SYSTEM.new_id()))
            return self._kernel.submit(lease, proposal._replace(request_id=request.id))
        except (APIError, Interrupted):
            del self._lost[proposal.request_id]
            raise

    def _compose(self, proposal: Proposal) -> _Request:
        if self._held or self._sending.locked() or self._broken is not None:
            with self._sending:
                self._raise_if_broken()
                if self._kernel.batches and len(proposal.args) <= _LARGEST_TOGETHER:
                    return _Request(proposal.request_id, tuple(self._held))
                self._send_held()
                self._raise_if_broken()
        return _Request(proposal.request_id)

    def complete_step(self, lease: LeaseKey, step_id: str, result: str) -> StepDecision:
        holds = self._kernel.batches and len(result) <= _LARGEST_TOGETHER // 8
        if step_id in self._repeatable and holds:
            self._repeatable.discard(step_id)
            self._raise_if_broken()
            self._held.append(_Held(step_id, result))
            self._sender.look_after(self)
            return _RECORDED
        return self._with_held(
            lambda: _Held(step_id, result).operation,
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

    def complete(self, lease: LeaseKey, output: str) -> None:
        self._with_held(
            lambda: f'{{"op":"complete","output":{output}}}',
            len(output),
            lambda: self._kernel.complete(lease, output),
            lambda _: None,
        )

    def fail(self, lease: LeaseKey, reason: str) -> None:
        self._with_held(
            lambda: f'{{"op":"fail","error":{json.dumps(reason)}}}',
            len(reason),
            lambda: self._kernel.fail(lease, reason),
            lambda _: None,
        )

    def release(self, lease: LeaseKey, *, interrupted: bool = False) -> None:
        self.flush()
        self._kernel.release(lease, interrupted=interrupted)

    # -- what is only passed on

    def get_execution(self, execution_id: str) -> Execution:
        return self._kernel.get_execution(execution_id)

    def list_steps(self, execution_id: str) -> list[Step]:
        return self._kernel.list_steps(execution_id)

    def delta(self, lease: LeaseKey, step_id: str, seq: int, data: str) -> None:
        self._kernel.delta(lease, step_id, seq, data)

    def renew(self, leases: Sequence[LeaseKey]) -> list[Renewal]:
        return self._kernel.renew(leases)

    # -- sending

    @property
    def holds_something(self) -> bool:
        return bool(self._held)

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
    ) -> T:
        """Send an operation, with what is held before it in the same request."""
        if self._held or self._sending.locked() or self._broken is not None:
            # The lock is kept over the exchange: a later request must not overtake what is held.
            with self._sending:
                self._raise_if_broken()
                if self._held and self._kernel.batches and size <= _LARGEST_TOGETHER:
                    answer = self._send_together(tuple(self._held), operation())
                    if answer is not None:
                        return read(answer.body)
                else:
                    self._send_held()
                self._raise_if_broken()
        return alone()

    def _send_together(
        self, held: Sequence[_Held], operation: str, request_id: str = ""
    ) -> _Success | None:
        """Send ``held`` and ``operation``; its answer, or ``None`` if it was not reached.

        Raises the kernel's refusal of ``operation``.
        """
        operations = [*(one.operation for one in held), operation]
        try:
            answers = self._kernel.batch(self._lease.key, operations, request_id)
        except APIError as refusal:
            if refusal.code in _OVER:
                raise
            self._send_held()  # Nothing of it was done, so each by itself.
            return None
        for one, answer in zip(held, answers, strict=False):
            if answer.status >= 300:
                self._refused(one, _refusal(answer))
                self._send_held()
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

    def _send_held(self) -> None:
        """Send each of what is held, one by one, until it is taken or refused for good."""
        while self._held:
            one = self._held[0]
            try:
                decision = self._kernel.complete_step(self._lease.key, one.step_id, one.result)
            except APIError as refusal:
                self._refused(one, refusal)
            else:
                self._taken(one, decision)

    def _taken(self, one: _Held, decision: StepDecision) -> None:
        self._forget(one)
        if decision.decision == DecisionKind.REPLAY and not _same(one, decision):
            message = f"another attempt settled step {one.step_id} in another way"
            self._break(api_error("lease_superseded", message, 409))

    def _forget(self, one: _Held) -> None:
        if one in self._held:  # Else it was sent meanwhile, beside a request that was lost.
            self._held.remove(one)

    def _refused(self, one: _Held, refusal: APIError) -> None:
        """Ask again; after three refusals record that it cannot be stored."""
        if refusal.code in _OVER:
            self._break(refusal)
            return
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

    def _raise_if_broken(self) -> None:
        if isinstance(self._broken, APIError):
            raise self._broken
        if self._broken is not None:
            raise Interrupted(self._broken)


class _Success(NamedTuple):
    body: Any


class _Request(NamedTuple):
    """A submit as it was sent: repeated under its id, it must say the very same."""

    id: str
    held: tuple[_Held, ...] = ()


def _may_be_held(proposal: Proposal) -> bool:
    safe = proposal.idempotency == Idempotency.SAFE_TO_RETRY
    return safe and proposal.kind != StepKind.LLM_CALL


def _submit(proposal: Proposal) -> str:
    return (
        f'{{"op":"submit","kind":{json.dumps(proposal.kind)},'
        f'"target":{json.dumps(proposal.target)},"args":{proposal.args or "null"},'
        f'"idempotency":"{proposal.idempotency}"}}'
    )


def _refusal(answer: Answer) -> APIError:
    error = error_of(answer.status, json.dumps(answer.body).encode(), "an operation of a batch")
    if isinstance(error, NetworkError):
        raise error
    return error


def _same(one: _Held, decision: StepDecision) -> bool:
    if decision.error_json is not None:
        return False
    return bool(json.loads(one.result) == decision.result)
