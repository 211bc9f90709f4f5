"""Bodies that may run only so long: each in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

from .carrying import in_copies
from .errors import StepTimeout
from .failures import timed_out
from .retrying import Bounds
from .types import Idempotency, Proposal
from .workers import beside, stack_of

__all__ = ["Limit", "TimedOut", "limit_of", "within"]

_log = logging.getLogger(__name__)


class Limit(NamedTuple):
    """How many seconds a try of an effect may take, and which it is: for what is told of it."""

    seconds: float
    execution_id: str
    proposal: Proposal
    number: int
    of: int


def limit_of(bounds: Bounds, execution_id: str, proposal: Proposal, number: int) -> Limit | None:
    """What bounds the try with that number of an effect; ``None``: it has no timeout."""
    if bounds.timeout is None:
        return None
    return Limit(bounds.timeout, execution_id, proposal, number, bounds.retries.attempts)


class TimedOut(StepTimeout):
    """The body of an effect has not ended in its time. ``record``: what is recorded of that."""

    def __init__(self, limit: Limit, stack: str) -> None:
        super().__init__(f"timed out after {limit.seconds:g} s")
        # It may still happen, so an identical call is as doubtful as after a crash.
        doubtful = limit.proposal.idempotency == Idempotency.AT_MOST_ONCE
        self.record = timed_out(self.message, stack, indeterminate=doubtful)


def within(
    limit: Limit,
    run: Callable[[], object],
    counted: Callable[[], AbstractContextManager[None]],
) -> object:
    """What ``run`` returns or raises, in another thread that has the caller's whole context.

    Raises ``TimedOut`` when it is not over within ``limit``; whatever it does then is nobody's.
    ``counted``: entered, for the rest of the body, when the caller is interrupted instead.
    """
    body = _Body(in_copies(run), counted)
    try:
        beside("rebuno-timed-body", body)
        over = body.wait(limit.seconds)
    except BaseException:
        body.give_up()
        raise
    if over:
        return body.outcome()
    stack = stack_of(body.ident)
    _log.warning(
        "execution %s: %s%s timed out after %g s, its body goes on at:\n%s",
        limit.execution_id,
        limit.proposal.target,
        f" (try {limit.number} of {limit.of})" if limit.of > 1 else "",
        limit.seconds,
        stack,
    )
    raise TimedOut(limit, stack)


class _Body:
    def __init__(
        self, run: Callable[[], object], counted: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self.ident: int | None = None
        self._run = run
        self._counted = counted
        self._guard = threading.Lock()
        # A plain lock that is free when the body is over: a wait for it can be interrupted at any
        # instruction without harm, a condition's cannot.
        self._running = threading.Lock()
        self._running.acquire()
        self._value: object = None
        self._error: BaseException | None = None
        self._given_up = self._over = False
        self._counting: AbstractContextManager[None] | None = None

    def __call__(self) -> None:
        with self._guard:
            if self._given_up:
                return
            self.ident = threading.get_ident()
        try:
            self._value = self._run()
        except BaseException as error:  # Raised in the thread that waits for it.
            self._error = error
        with self._guard:
            self._over = True
        self._running.release()
        if self._counting is not None:
            self._counting.__exit__(None, None, None)

    def wait(self, seconds: float) -> bool:
        """Whether it is over in that time."""
        return self._running.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))

    def outcome(self) -> object:
        error, self._error = self._error, None
        if error is None:
            return self._value
        try:
            raise error
        finally:
            del error  # It would refer to itself by this frame.

    def give_up(self) -> None:
        """Nobody waits for it any more. If it runs, its attempt does when it ends, as for bodies in
        other threads; if it has not begun, it never does."""
        with self._guard:
            self._given_up = True
            if self.ident is not None and not self._over:
                self._counting = self._counted()
                self._counting.__enter__()
