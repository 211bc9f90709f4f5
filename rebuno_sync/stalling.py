"""Whether a handler still moves, for leases that are not to keep one alive that hangs; and whether
it only waits, for hosts that end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Moves"]


class Moves:
    """When a handler last entered or left an effect. Thread-safe."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._every: float | None = None
        self._last = 0.0
        self._guard = threading.Lock()
        self._resting = self._waiting = self._busy = 0
        self._at_rest: Callable[[], None] | None = None
        self.given_up = False

    def expect(self, every: float | None) -> None:
        """From now on it has to move at least once in so many seconds; ``None``: it need not."""
        self._last, self._every = self._now(), every

    def made(self) -> None:
        """It has entered or left an effect."""
        if self._every is not None:
            self._last = self._now()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """It waits in a place of ours, however long: it does not hang."""
        with self._guard:
            self._resting += 1
        try:
            with self.waiting():
                yield
        finally:
            with self._guard:
                self._resting -= 1
            self.made()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """It waits for somebody's answer, and for nothing that would be lost if it was asked for
        again: its host need not wait with it, though it may hang."""
        with self._guard:
            self._waiting += 1
        self._look()
        try:
            yield
        finally:
            with self._guard:
                self._waiting -= 1

    @contextmanager
    def busy(self) -> Iterator[None]:
        """One of its effects is under way."""
        with self._guard:
            self._busy += 1
        try:
            yield
        finally:
            with self._guard:
                self._busy -= 1
            if self._at_rest is not None:
                self._look()

    @contextmanager
    def dozing(self) -> Iterator[None]:
        """The effect of the calling thread that is under way does nothing but wait."""
        with self._guard:
            self._busy -= 1
        try:
            yield
        finally:
            with self._guard:
                self._busy += 1

    def when_at_rest(self, act: Callable[[], None]) -> None:
        """Call ``act``, which must not block, once it waits and none of its effects does anything
        else; at once if that is so."""
        with self._guard:
            self._at_rest = act
        self._look()

    def _look(self) -> None:
        with self._guard:
            if not self._waiting or self._busy or self._at_rest is None:
                return
            act, self._at_rest = self._at_rest, None
        act()

    @property
    def stalled(self) -> bool:
        """Whether it has not moved for too long."""
        if self._every is None or self._resting:
            return False
        return self._now() - self._last > self._every

    def give_up(self) -> str:
        """Wait for it no more. Why, in words."""
        self.given_up = True
        return (
            "its handler has neither begun nor ended an effect for"
            f" {self._now() - self._last:.3g} s (stall_timeout={self._every or 0:g})"
        )
