"""Bodies that may run only so long: each in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from .carrying import in_copies
from .errors import StepTimeout
from .failures import timed_out
from .workers import beside, stack_of

__all__ = ["TimedOut", "within"]

_log = logging.getLogger(__name__)


class TimedOut(StepTimeout):
    """The body of an effect has not ended in its time. ``record``: what is recorded of that."""

    def __init__(self, seconds: float, stack: str) -> None:
        super().__init__(f"timed out after {seconds:g} s")
        self.record = timed_out(self.message, stack)


def within(
    seconds: float,
    run: Callable[[], object],
    counted: Callable[[], AbstractContextManager[None]],
    step_id: str,
) -> object:
    """What ``run`` returns or raises, in another thread that has the caller's whole context.

    Raises ``TimedOut`` when it is not over in ``seconds``; whatever it does then is nobody's.
    ``counted``: entered, for the rest of the body, when the caller is interrupted instead.
    ``step_id``: whose body it is, for the log.
    """
    body = _Body(in_copies(run), counted)
    try:
        beside("rebuno-timed-body", body)
        over = body.wait(seconds)
    except BaseException:
        body.give_up()
        raise
    if over:
        return body.outcome()
    stack = stack_of(body.ident)
    _log.warning(
        "step %s timed out after %g s, its body still running:\n%s", step_id, seconds, stack
    )
    raise TimedOut(seconds, stack)


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
