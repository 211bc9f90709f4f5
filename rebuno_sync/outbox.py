"""Outcomes that do not hold up their handler.

The result of an effect that may be repeated is held: where the kernel knows ``batch`` (protocol.md
17) for at most 2 ms, so that the next submit, or the end, takes it along in one request; on other
kernels, if the line is slow, it is sent at once in another thread and the next submit travels
beside it. ``backlog`` has the rule under which the handler goes on meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from .backlog import LARGEST_TOGETHER, Backlog
from .clock import SYSTEM
from .errors import APIError, Interrupted
from .heartbeat import Lease
from .held import Held, Request
from .kernel_client import KernelClient, NotOffered
from .messages import completion_body, decision_of, submit_operation
from .ports import ResourceKernel
from .resource_calls import AfterOutcomes
from .sender import Sender
from .types import (
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

HELD_SECONDS = 0.002
"""How long an outcome waits for a request that takes it along."""

_SLOW_SECONDS = 0.005
"""A line on which the quickest answer took longer than that is worth another thread."""

_RECORDED = StepDecision(DecisionKind.RECORDED)


class Outbox:
    """The kernel of one attempt, with outcomes that travel beside what comes next. Thread-safe.

    What the kernel offers is taken from ``kernel`` once: a later delivery may name less (a proxy
    strips the header), and what is held, or was sent under an id, must not come into doubt by it.
    Once a held result was refused for good every later call raises ``Interrupted``.
    """

    takes_deltas = True

    def __init__(self, kernel: KernelClient, lease: Lease, sender: Sender) -> None:
        self._kernel = kernel
        self._lease = lease
        self._sender = sender
        self._backlog = Backlog(kernel, lease)
        self._asks_with_ids = kernel.wants_request_ids
        self._keeps_tries = kernel.keeps_tries
        self._repeatable: set[str] = set()
        self._at_work: set[object] = set()
        """Submits under way, by a token, and open steps by their id."""
        self._lost: dict[str, Request] = {}
        # What has nothing to do with what is held back.
        self.parks = kernel.parks
        self.renews_together = kernel.renews_together
        self.takes_leases_back = kernel.takes_leases_back
        self.recorded, self.wall, self.renew = kernel.recorded, kernel.wall, kernel.renew
        self.get_execution, self.list_steps = kernel.get_execution, kernel.list_steps
        self.flush = self._backlog.flush
        self.resources: ResourceKernel = AfterOutcomes(kernel.resources, self.flush)
        self.get_step, self.previous, self.spawn = kernel.get_step, kernel.previous, kernel.spawn
        self.delta = kernel.delta

    @property
    def wants_request_ids(self) -> bool:
        return self._asks_with_ids

    @property
    def keeps_tries(self) -> bool:
        return self._keeps_tries

    # -- what need not wait, and what is held

    def submit(self, lease: LeaseKey, proposal: Proposal) -> StepDecision:
        token = object()
        self._at_work.add(token)
        try:
            decision = self._submit(lease, proposal)
            proceeds = decision.decision == DecisionKind.PROCEED
            if proceeds:
                self._at_work.add(decision.step_id)
        finally:
            self._at_work.discard(token)
        if proceeds and _may_be_held(proposal):
            self._repeatable.add(decision.step_id)
        if self._backlog and decision.decision != DecisionKind.REPLAY:
            # No body starts before the outcome before it, and none is left behind at a signal.
            self._lease.insist(self.flush)
        if proceeds:
            self._backlog.raise_if_broken()
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
                with self._backlog.sending:
                    answer = self._backlog.send_together(
                        request.held, submit_operation(proposal), request.id, again=again
                    )
                if answer is not None:
                    return decision_of(answer.body)
                self._backlog.raise_if_broken()
                # It was not reached, and its id stands for that.
                request = self._lost[proposal.request_id] = Request(str(SYSTEM.new_id()))
            return self._kernel.submit(lease, proposal._replace(request_id=request.id))
        except (APIError, Interrupted):
            self._lost.pop(proposal.request_id, None)
            raise

    def _compose(self, proposal: Proposal) -> Request:
        backlog = self._backlog
        if not backlog.in_the_way:
            return Request(proposal.request_id)
        backlog.raise_if_broken()
        together: tuple[Held, ...] = ()
        if backlog.batches:
            with backlog.sending:
                backlog.raise_if_broken()
                if len(proposal.args) <= LARGEST_TOGETHER:
                    together = backlog.portion()
                else:
                    backlog.insist()
        elif not _may_be_held(proposal):  # Another travels beside what is being sent.
            self._lease.insist(self.flush)
        backlog.raise_if_broken()
        return Request(proposal.request_id, together)

    def complete_step(self, lease: LeaseKey, step_id: str, result: str) -> StepDecision:
        alone = self._at_work <= {step_id}
        self._at_work.discard(step_id)
        if step_id in self._repeatable:
            self._repeatable.discard(step_id)
            if len(result) <= LARGEST_TOGETHER // 8 and self._pays_to_hold(alone=alone):
                self._backlog.raise_if_over()
                patience = HELD_SECONDS if self._backlog.batches else 0.0
                self._backlog.hold(Held(step_id, result, patience))
                self._sender.look_after(self._backlog)
                return _RECORDED
        return self._with_held(
            lambda: Held(step_id, result).operation,
            len(result),
            lambda: self._kernel.complete_step(lease, step_id, result),
            decision_of,
        )

    def _pays_to_hold(self, *, alone: bool) -> bool:
        # Without batches only in a chain: bodies of other threads would wait for it, which can use
        # the line meanwhile.
        return self._backlog.batches or (alone and self._kernel.quickest > _SLOW_SECONDS)

    def fail_step(self, lease: LeaseKey, step_id: str, error: str) -> StepDecision:
        self._at_work.discard(step_id)
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
        backlog = self._backlog
        check = backlog.raise_if_broken if ends else backlog.raise_if_over
        if backlog.in_the_way and backlog.batches:
            with backlog.sending:
                check()
                if backlog.due is not None and size <= LARGEST_TOGETHER:
                    together = backlog.portion()
                    check()
                    answer = backlog.send_together(together, operation())
                    if answer is not None:
                        return read(answer.body)
                else:
                    backlog.send_held()
        self.flush()
        check()
        return alone()

    # -- what goes after what is held

    def retrying(
        self, lease: LeaseKey, step_id: str, attempt: int, error: str, retry_in: float
    ) -> StepDecision:
        return self._tell(lambda: self._kernel.retrying(lease, step_id, attempt, error, retry_in))

    def begin_try(self, lease: LeaseKey, step_id: str, attempt: int) -> StepDecision:
        return self._tell(lambda: self._kernel.begin_try(lease, step_id, attempt))

    def _tell(self, of_a_try: Callable[[], StepDecision]) -> StepDecision:
        self.flush()
        self._backlog.raise_if_broken()
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
        self._backlog.raise_if_broken()
        return self._kernel.suspend(lease, wake)


def _may_be_held(proposal: Proposal) -> bool:
    safe = proposal.idempotency == Idempotency.SAFE_TO_RETRY
    return safe and proposal.kind != StepKind.LLM_CALL
