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
from .workers import Slot, Workers, beside

__all__ = ["Holder", "Sender"]

_log = logging.getLogger(__name__)

_FIRST_BUSY_PAUSE, _LONGEST_BUSY_PAUSE = 0.002, 0.05
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_CLOSING_SECONDS = 0.5
_IDLE_SECONDS = 30.0
"""After which the thread that keeps the time ends."""


class Holder(Protocol):
    """Holds outcomes of one attempt back for a while."""

    @property
    def due(self) -> float | None:
        """When the oldest of what is held is to be sent (on the monotonic clock); ``None`` for
        nothing."""

    @property
    def lease(self) -> Lease: ...

    def try_flush(self) -> bool:
        """Send what is held, unless a request of the attempt is under way; whether it did.

        Raises ``NetworkError`` when its fate is unknown: it is still held.
        """


class Sender:
    """Sends what outboxes hold when its time has come: one thread keeps the time, and each outbox
    is sent in a thread of its own, so that a stuck request delays nobody else's. They start when
    there is something to do and end when there has long been nothing, or at ``close``."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._changed = threading.Condition(self._guard)
        self._due: list[tuple[float, int, Holder, float]] = []
        self._order = count()
        # Each holder is due once, or is being sent: never more threads than attempts.
        self._watched: set[Holder] = set()
        self._sending: Workers[tuple[Holder, float]] = Workers(
            "rebuno-outbox", self._send, size=1 << 30, longest_queue=1 << 30
        )
        self._keeps_time = False
        self._closed = False

    def look_after(self, holder: Holder) -> None:
        """Send what ``holder`` holds when it is due, unless it was sent by then."""
        with self._guard:
            due = holder.due
            if holder in self._watched or due is None:
                if not self._keeps_time and self._due:
                    self._start()
                return
            self._watched.add(holder)
            if due > SYSTEM.monotonic():
                self._schedule(holder, due, 0.0)
                return
        self._hand_over_or_later(holder, 0.0)

    def close(self) -> None:
        """Wait for what is held, not for long, and end the threads. What a body that outlives its
        agent hands in later is sent all the same."""
        with self._guard:
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._watched, _CLOSING_SECONDS)
        for item in self._sending.close():
            self._hand_over(*item)

    def _schedule(self, holder: Holder, due: float, pause: float) -> None:
        entry = (due, next(self._order), holder, pause)
        heapq.heappush(self._due, entry)
        if not self._keeps_time:
            self._start()
        elif self._due[0] is entry:  # Otherwise it wakes in time by itself.
            self._changed.notify_all()

    def _start(self) -> None:
        try:
            beside("rebuno-outbox", self._loop)
            self._keeps_time = True
        except RuntimeError as error:  # The next request takes along what is held.
            _log.warning("outcomes wait for the next request: %s", error)

    def _loop(self) -> None:
        while (next_one := self._next()) is not None:
            self._hand_over_or_later(*next_one)

    def _next(self) -> tuple[Holder, float] | None:
        """Wait for the next holder that is due; ``None`` when there is nothing to wait for."""
        with self._guard:
            while True:
                if (
                    not self._changed.wait_for(lambda: self._due or self._closed, _IDLE_SECONDS)
                    or not self._due
                ):
                    self._keeps_time = False
                    return None
                now = SYSTEM.monotonic()
                due, _, holder, pause = self._due[0]
                if due > now:
                    self._changed.wait(due - now)
                    continue
                heapq.heappop(self._due)
                wanted = holder.due
                if wanted is None:
                    self._leave(holder)
                elif wanted > now:  # What it was watched for went with a request.
                    self._schedule(holder, wanted, 0.0)
                else:
                    return holder, pause

    def _hand_over_or_later(self, holder: Holder, pause: float) -> None:
        try:
            self._hand_over(holder, pause)
        except RuntimeError:  # No thread can be had now.
            with self._guard:
                self._schedule(holder, SYSTEM.monotonic() + _FIRST_PAUSE, pause)

    def _hand_over(self, holder: Holder, pause: float) -> None:
        if not self._sending.offer((holder, pause)):
            beside("rebuno-outbox", lambda: self._flush(holder, pause))

    def _send(self, item: tuple[Holder, float], _: Slot) -> None:
        self._flush(*item)

    def _flush(self, holder: Holder, pause: float) -> None:
        try:
            # It must not hold up the others: whatever is under way takes along what it can.
            if holder.try_flush():
                pause = 0.0
            else:
                pause = min(max(pause * 2, _FIRST_BUSY_PAUSE), _LONGEST_BUSY_PAUSE)
        except Exception as error:
            if not isinstance(error, NetworkError):
                _log.exception("an outcome was not sent")
            # Its fate is unknown: ask again for as long as the lease can hold.
            pause = min(max(pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE)
        with self._guard:
            if holder.due is not None and holder.lease.can_hold():
                self._schedule(holder, SYSTEM.monotonic() + pause, pause)
            else:
                self._leave(holder)

    def _leave(self, holder: Holder) -> None:
        self._watched.discard(holder)
        if self._closed:
            self._changed.notify_all()
