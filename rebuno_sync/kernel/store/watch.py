"""Tells who holds a lease in this process that it is over, whoever ended it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ...errors import RebunoError
from ...ports import Clock
from ...types import LeaseKey
from ..attempts import Attempts
from ..moment import Moment
from . import queue
from .database import Database

__all__ = ["Watch"]

_log = logging.getLogger(__name__)

LOOK_SECONDS = 0.25
"""How late a lease that another process ended may be noticed."""

_STOP_SECONDS = 1.0
_IDLE_LOOKS = 40
"""After which a thread that has nothing to watch ends."""


class Watch:
    """Looks whether the watched leases still stand, each time that the file has changed.

    What this process ends it is told of at once (``ended``); a thread looks for what others end,
    and for deadlines, which nobody may be there to notice.
    """

    def __init__(self, database: Database, attempts: Attempts, clock: Clock) -> None:
        self._database = database
        self._attempts = attempts
        self._clock = clock
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._kept_new = False

    def keep(self, lease: LeaseKey, over: Callable[[], None]) -> None:
        """Call ``over`` once when ``lease``, which this process holds, is found to be over, unless
        its attempt ends by itself before."""
        attempt = self._attempts.get(lease)
        if attempt is None:
            over()
            return
        attempt.on_over = over
        self._kept_new = True  # It may have been over before this.
        with self._guard:
            if self._thread is None and not self._closed.is_set():
                thread = threading.Thread(target=self._loop, name="rebuno-watch", daemon=True)
                thread.start()
                self._thread = thread

    def ended(self, execution_id: str) -> None:
        """This process has ended that execution."""
        for lease, attempt in self._attempts.watched():
            if lease.execution_id == execution_id:
                attempt.tell_over()

    def _loop(self) -> None:
        seen, idle = -1, 0
        while not self._closed.wait(LOOK_SECONDS):
            idle = 0 if self._attempts.watched() else idle + 1
            if idle > _IDLE_LOOKS and self._leave():
                return
            self._tell_overdue()
            new, self._kept_new = self._kept_new, False
            try:
                if new or (not idle and self._database.has_changed(seen)):
                    seen = self._database.generation
                    self.look_once()
            except RebunoError as error:
                _log.debug("the leases were not looked at: %s", error)
                seen = -1

    def _tell_overdue(self) -> None:
        """The heartbeat that these are made to send ends the execution."""
        now = Moment.of(self._clock)
        for _, attempt in self._attempts.watched():
            if attempt.overdue(now):
                attempt.tell_over()

    def _leave(self) -> bool:
        with self._guard:
            if self._attempts.watched():
                return False
            self._thread = None
            return True

    def look_once(self) -> None:
        """Tell of every watched lease that is over."""
        watched = self._attempts.watched()
        with self._database.reading() as db:
            over = [attempt for lease, attempt in watched if not queue.is_held(db, lease)]
        for attempt in over:
            attempt.tell_over()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()
        with self._guard:
            thread = self._thread
        if thread is not None:
            thread.join(_STOP_SECONDS)
