"""Sends in time what would otherwise have waited for a request to travel with."""

from __future__ import annotations

import heapq
import logging
import threading
from itertools import count
from typing import Protocol

from .clock import SYSTEM
from .errors import NetworkError
from .heartbeat import Lease

__all__ = ["Holder", "Sender"]

_log = logging.getLogger(__name__)

HELD_SECONDS = 0.002
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


class Holder(Protocol):
    """Holds outcomes of one attempt back for a while."""

    @property
    def holds_something(self) -> bool: ...

    @property
    def lease(self) -> Lease: ...

    def try_flush(self) -> bool:
        """Send what is held, unless a request of the attempt is under way; whether it did.

        Raises ``NetworkError`` when its fate is unknown: it is still held.
        """


class Sender:
    """Sends what outboxes hold when its time has come: one daemon thread, started with the
    first."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._changed = threading.Condition(self._guard)
        self._waiting: list[tuple[float, int, Holder]] = []
        self._order = count()
        self._pauses: dict[Holder, float] = {}
        self._started = False

    def look_after(self, holder: Holder, seconds: float = HELD_SECONDS) -> None:
        """Send what ``holder`` holds after that time, unless it has been sent by then."""
        entry = (SYSTEM.monotonic() + seconds, next(self._order), holder)
        with self._guard:
            heapq.heappush(self._waiting, entry)
            if not self._started:
                threading.Thread(target=self._loop, name="rebuno-outbox", daemon=True).start()
                self._started = True
            elif self._waiting[0] is entry:  # Otherwise it wakes in time by itself.
                self._changed.notify()

    def _loop(self) -> None:
        while True:
            with self._guard:
                if not self._waiting:
                    self._changed.wait()
                    continue
                due, _, holder = self._waiting[0]
                pause = due - SYSTEM.monotonic()
                if pause > 0 and holder.holds_something:
                    self._changed.wait(pause)
                    continue
                heapq.heappop(self._waiting)
            if holder.holds_something:
                self._send(holder)

    def _send(self, holder: Holder) -> None:
        try:
            sent = holder.try_flush()
        except Exception as error:
            if not isinstance(error, NetworkError):
                _log.exception("an outcome was not sent")
            self._try_again(holder)
        else:
            if sent:
                self._pauses.pop(holder, None)
            else:
                self.look_after(holder)  # It must not hold up those of other attempts.

    def _try_again(self, holder: Holder) -> None:
        """Its fate is unknown: ask again for as long as the lease can hold."""
        pause = self._pauses.pop(holder, _FIRST_PAUSE)
        if holder.lease.can_hold():
            self._pauses[holder] = min(pause * 2, _LONGEST_PAUSE)
            self.look_after(holder, pause)
