"""``Crew``: threads that come when there is work and go when there is none."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["Crew"]

_log = logging.getLogger(__name__)

_IDLE_SECONDS = 10.0


class Crew:
    """Every piece of work gets a thread at once, an idle one or a new one; whoever hands work out
    sees to it that there are not too many."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._work: deque[Callable[[], None]] = deque()
        self._idle = 0
        self._busy = 0
        self._closed = False

    def hand(self, work: Callable[[], None]) -> None:
        """Have ``work`` done by a thread; not once the crew is closed."""
        with self._changed:
            if self._closed:
                return
            self._busy += 1
            self._work.append(work)
            if self._idle >= len(self._work):
                self._changed.notify()
                return
        threading.Thread(target=self._loop, name=self._name, daemon=True).start()

    def _loop(self) -> None:
        while work := self._next():
            try:
                work()
            except Exception:
                _log.exception("a delivery failed")
            finally:
                with self._changed:
                    self._busy -= 1
                    if not self._busy:
                        self._changed.notify_all()

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._work or self._closed, _IDLE_SECONDS)
            self._idle -= 1
            return self._work.popleft() if self._work else None

    def join(self, seconds: float) -> bool:
        """Wait until nothing is being done; whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy, seconds)

    def close(self, seconds: float) -> None:
        """Take nothing more, and wait that long for what is being done."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._busy, seconds)
