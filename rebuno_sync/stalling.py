"""Whether a handler still moves, for leases that are not to keep one alive that hangs."""

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
        self._resting = 0

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
            yield
        finally:
            with self._guard:
                self._resting -= 1
            self.made()

    @property
    def stalled(self) -> bool:
        """Whether it has not moved for too long."""
        if self._every is None or self._resting:
            return False
        return self._now() - self._last > self._every
