"""Bodies that wait long: their attempt ends, and another goes on when there is something to go on
with (protocol.md 9.7, `wake` of 17)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .clock import SYSTEM
from .context import ExecutionContext
from .errors import Blocked
from .types import Wake

__all__ = ["wait_until"]

_SHORTEST_PARKED_SECONDS = 1.0
"""What is shorter is waited for here: an attempt costs more."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 1.0
_PATIENCE_SECONDS = 1.0
"""How long a thread of the handler that is between two effects is given to come to the next."""


def wait_until(
    context: ExecutionContext, is_over: Callable[[], bool], *, until: float | None = None
) -> None:
    """Return when ``is_over``, called in the body of a step; or leave by ``Blocked``, parked.

    ``until``: when it is over by itself, on the boot-time clock; without it, somebody else settles
    the step. The execution is parked once every call that is in flight waits like this one.
    """
    bodies = context.bodies
    pause = _FIRST_PAUSE_SECONDS
    with context.dozing(), _waiting(context, until):
        while True:
            context.check()
            seen = bodies.changes
            if is_over():
                return
            if _worth_it(context, until) and bodies.may_park():
                context.past.wait_for_others(_PATIENCE_SECONDS)
                with bodies.parking:
                    context.check()
                    if bodies.may_park():
                        context.heard(lambda: _park(context))
                        if is_over():
                            return
            left = pause if until is None else until - SYSTEM.boottime()
            bodies.wait_for_change(seen, max(0.0, min(left, _longest(until))))
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


@contextmanager
def _waiting(context: ExecutionContext, until: float | None) -> Iterator[None]:
    """The step in whose body this is does nothing but wait, and so does this thread."""
    body = context.body
    assert body is not None
    with context.bodies.waiting(body, until):
        context.past.move(-1)
        try:
            yield
        finally:
            context.past.move(1)


def _worth_it(context: ExecutionContext, until: float | None) -> bool:
    if not context.recording.parks:  # Nobody would wake what sleeps beside.
        return all(its_end is None for its_end in context.bodies.waits().values())
    return until is None or until - SYSTEM.boottime() >= _SHORTEST_PARKED_SECONDS


def _park(context: ExecutionContext) -> None:
    """Give the lease up, where the kernel agrees that something waits."""
    wake = _wake(context)
    if context.recording.suspend(wake):
        if wake is None:
            raise Blocked("the execution waits for subagents")
        raise Blocked(f"the execution sleeps for {wake.seconds:.0f} s")


def _wake(context: ExecutionContext) -> Wake | None:
    """The sleep that is over first. One that is not counts from the start of its step again."""
    waits = context.bodies.waits()
    timed = [(until, step_id) for step_id, until in waits.items() if until is not None]
    if not timed:
        return None
    until, first = min(timed)
    others = tuple(step_id for step_id, its_end in waits.items() if its_end is None)
    return Wake(first, max(0.0, until - SYSTEM.boottime()), others)


def _longest(until: float | None) -> float:
    """Between two looks at the clock: it goes on in a suspended machine, and a wait does not."""
    return _LONGEST_PAUSE_SECONDS if until is None else 10.0
