"""Outcomes that their handler takes for recorded, and the kernel has still to take.

The handler goes on meanwhile, under one rule: no body starts, no other outcome is sent and nothing
is ended before the kernel has taken what is held.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from .errors import APIError, Interrupted, NetworkError, api_error
from .failures import not_storable
from .heartbeat import Lease
from .held import Held, size_of
from .kernel_client import Answer, KernelClient, NotOffered
from .messages import decision_of
from .replies import asks_for_patience, error_of, refuses_the_value
from .types import LARGEST_BATCH, DecisionKind, StepDecision

__all__ = ["LARGEST_TOGETHER", "OVER", "Backlog", "Success"]

LARGEST_TOGETHER = 1024 * 1024
"""Characters of one operation; a larger one travels alone."""

OVER = ("lease_superseded", "execution_terminal")
_OUTCOME_TRIES = 3


class Backlog:
    """What one attempt holds, in order, and its way to the kernel. Thread-safe.

    A held result that the kernel refuses for good is recorded as a failure of its step. The
    handler has gone on with it, so from then on the attempt is broken.
    """

    def __init__(self, kernel: KernelClient, lease: Lease) -> None:
        self._kernel = kernel
        self.lease = lease
        self.batches = kernel.batches
        """Whether what is held can travel with a later request."""
        self.sending = threading.Lock()
        """Kept over an exchange that nothing which is held may overtake."""
        self._held: deque[Held] = deque()
        self._broken: APIError | str | None = None

    def __bool__(self) -> bool:
        """Whether something is held, or speaks against going on."""
        return bool(self._held) or self._broken is not None

    @property
    def in_the_way(self) -> bool:
        """Whether a request must look at what is held, or is being sent."""
        return bool(self) or self.sending.locked()

    @property
    def due(self) -> float | None:
        """When the oldest of what is held is to be sent; ``None`` for nothing."""
        try:
            return self._held[0].due
        except IndexError:
            return None

    def hold(self, one: Held) -> None:
        self._held.append(one)

    def flush(self) -> None:
        """Send what is held. Raises ``NetworkError`` when its fate is unknown: it is still held."""
        with self.sending:
            self.send_held()

    def try_flush(self) -> bool:
        """``flush``, unless a request with outcomes is under way; whether it did."""
        if not self.sending.acquire(blocking=False):
            return False
        try:
            self.send_held()
        finally:
            self.sending.release()
        return True

    # -- while ``sending`` is locked

    def portion(self) -> tuple[Held, ...]:
        """What is held, as far as it fits into one request: the rest, of which there may be much
        after an outage, is sent first."""
        while len(self._held) >= LARGEST_BATCH or size_of(self._held) > LARGEST_TOGETHER:
            self.lease.insist(self._send_first)
        return tuple(self._held)

    def send_together(
        self, held: Sequence[Held], operation: str, request_id: str = "", *, again: bool = False
    ) -> Success | None:
        """Send ``held`` and ``operation``; its answer, or ``None`` if it was not reached.

        Raises the kernel's refusal of ``operation``. ``again``: it may have been done before, by
        the same request whose answer was lost.
        """
        operations = [*(one.operation for one in held), operation]
        try:
            answers = self._kernel.batch(self.lease.key, operations, request_id)
        except (APIError, NotOffered) as refusal:
            if isinstance(refusal, NotOffered):
                self.batches = False
            elif refusal.code in OVER:
                raise
            if again:
                raise NetworkError(f"whether it was done before is unknown: {refusal}") from refusal
            self.insist()  # Nothing of it was done, so each by itself.
            return None
        for one, answer in zip(held, answers, strict=False):
            if answer.status >= 300:
                self._refused(one, _refusal(answer))
                self.insist()
                return None
            self._taken(one, decision_of(answer.body))
            if self._broken is not None:
                return None
        if len(answers) <= len(held):
            return None
        last = answers[len(held)]
        if last.status >= 300:
            raise _refusal(last)
        return Success(last.body)

    def insist(self) -> None:
        """Send what is held, again where an answer is lost: that never records one twice."""
        self.lease.insist(self.send_held)

    def send_held(self) -> None:
        """Send each of what is held, one by one, until it is taken or refused for good."""
        while self._held:
            self._send_first()

    def _send_first(self) -> None:
        one = self._held[0]
        try:
            decision = self._kernel.complete_step(self.lease.key, one.step_id, one.result)
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
        if refusal.code in OVER:
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
                self._kernel.fail_step(self.lease.key, one.step_id, failure)
            except APIError as error:
                refusal = error
        self._forget(one)
        self._break(f"the kernel refused the result of step {one.step_id}: {refusal}")

    # -- broken

    def _break(self, why: APIError | str) -> None:
        """This attempt goes on with something that is not recorded: it must stop."""
        self._broken = self._broken or why
        if isinstance(why, APIError):  # It is over, and nothing of it is taken any more.
            self._held.clear()

    def raise_if_over(self) -> None:
        """Raise when the kernel takes nothing more of this attempt."""
        broken = self._broken
        if isinstance(broken, APIError):
            raise api_error(broken.code, broken.message, broken.status_code)

    def raise_if_broken(self) -> None:
        """Raise when no further effect may start and nothing may be ended."""
        self.raise_if_over()
        if isinstance(self._broken, str):
            raise Interrupted(self._broken)


class Success(NamedTuple):
    """The answer to an operation that travelled with what was held."""

    body: Any


def _refusal(answer: Answer) -> APIError:
    error = error_of(answer.status, json.dumps(answer.body).encode(), "an operation of a batch")
    if isinstance(error, NetworkError):
        raise error
    return error
