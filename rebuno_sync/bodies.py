"""The calls of one attempt that are in flight, and which of them only wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .frames import Frame

__all__ = ["Bodies"]


class Bodies:
    """Counts calls from before they are submitted until their outcomes are recorded. Thread-safe.

    A call in whose body others are called waits when those do.
    """

    def __init__(self) -> None:
        self.parking = threading.Lock()
        """Held by whoever asks the kernel to park the execution: one asks at a time."""
        # ``with`` a plain lock only: one of a condition is not safe from an interrupt.
        self._guard = threading.Lock()
        self._changed = threading.Condition(self._guard)
        self._in_flight = 0
        self._waiting: dict[Frame[Any], float | None] = {}
        self._changes = 0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """A call is in flight."""
        with self._guard:
            self._in_flight += 1
        try:
            yield
        finally:
            with self._guard:
                self._in_flight -= 1
                self._tell()

    @contextmanager
    def waiting(self, frame: Frame[Any], until: float | None) -> Iterator[None]:
        """The body of ``frame`` waits: till ``until`` on the boot-time clock, or for what somebody
        else does."""
        with self._guard:
            self._waiting[frame] = until
            self._tell()
        try:
            yield
        finally:
            with self._guard:
                del self._waiting[frame]

    def _tell(self) -> None:
        self._changes += 1
        self._changed.notify_all()

    def nudge(self) -> None:
        """Whoever waits looks again."""
        with self._guard:
            self._tell()

    @property
    def changes(self) -> int:
        """Take it before you look, then ``wait_for_change``."""
        return self._changes

    def wait_for_change(self, seen: int, seconds: float) -> None:
        with self._guard:
            self._changed.wait_for(lambda: self._changes != seen, seconds)

    def drain(self, seconds: float) -> bool:
        """Wait until no call is in flight, at most that long; whether none is."""
        with self._guard:
            return self._changed.wait_for(lambda: not self._in_flight, seconds)

    def may_park(self) -> bool:
        """Whether every call in flight waits, and all can be met again.

        What waits is settled by the kernel. A body around it runs once more, so it must be one
        that may.
        """
        with self._guard:
            around = {outer for frame in self._waiting for outer in _around(frame)}
            inside = set(self._waiting) - around
            everything = around | inside
            return len(everything) == self._in_flight and not any(it.once for it in around)

    def waits(self) -> dict[str, float | None]:
        """The steps that wait, and till when those that wake by themselves."""
        with self._guard:
            return {frame.step_id: until for frame, until in self._waiting.items()}


def _around(frame: Frame[Any]) -> Iterator[Frame[Any]]:
    """The bodies in which the one of ``frame`` was called."""
    outer = frame.outer
    while outer is not None and outer.context is frame.context:
        if outer.step_id:
            yield outer
        outer = outer.outer
