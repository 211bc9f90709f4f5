"""How many bodies of an attempt run: whoever ends it waits for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Bodies"]


class Bodies:
    """A count that can be waited for. Thread-safe."""

    def __init__(self) -> None:
        # ``with`` a plain lock only: one of a condition is not safe from an interrupt.
        self._guard = threading.Lock()
        self._idle = threading.Condition(self._guard)
        self._running = 0

    @contextmanager
    def one_more(self) -> Iterator[None]:
        with self._guard:
            self._running += 1
        try:
            yield
        finally:
            with self._guard:
                self._running -= 1
                if not self._running:
                    self._idle.notify_all()

    def drain(self, seconds: float) -> bool:
        """Wait until none runs, at most that long; whether none does."""
        with self._guard:
            return self._idle.wait_for(lambda: not self._running, seconds)
