"""``Lease``, and the one daemon thread of a process that renews every live lease (protocol.md
5.3)."""

from __future__ import annotations

import heapq
import logging
import os
import threading
from collections.abc import Callable
from itertools import count
from typing import TypeVar

from .clock import SYSTEM
from .errors import NetworkError, StorageError
from .ports import AgentKernel, Clock
from .types import LeaseKey, Renewal

__all__ = ["RENEWER", "Lease", "Renewer"]

T = TypeVar("T")

_log = logging.getLogger(__name__)

_LONGEST_INTERVAL = 30.0
_RETRY_SECONDS = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


class Lease:
    """The right of this process to run one attempt, and the flag that says it is over.

    ``seconds``: how long it lasts after the last accepted heartbeat. A lease that was just claimed
    counts as accepted now; one that came by webhook starts with ``accepted_at=None`` and needs a
    first beat. ``measured_on``: the clock of its age. A kernel elsewhere goes on while this
    machine sleeps, so that is the boot-time clock; the embedded kernel sleeps too and measures on
    the monotonic one.
    """

    def __init__(
        self,
        key: LeaseKey,
        seconds: float,
        *,
        accepted_at: float | None = None,
        measured_on: Callable[[], float] = SYSTEM.boottime,
    ) -> None:
        self.key = key
        self.seconds = seconds
        self.now = measured_on
        self._accepted_at = accepted_at
        self._over = threading.Event()
        self._guard = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def interval(self) -> float:
        """Seconds between heartbeats."""
        return min(self.seconds / 3, _LONGEST_INTERVAL)

    @property
    def over(self) -> bool:
        """Whether the lease was lost, or the execution cancelled."""
        return self._over.is_set()

    def holds(self) -> bool:
        """Whether work may be done under it this instant.

        A process that was stopped for longer than its lease finds out here, by its own clock.
        """
        at = self._accepted_at
        if at is None or self.now() - at >= self.seconds:
            return False
        return not self._over.is_set()

    def accepted(self, sent_at: float) -> None:
        """A heartbeat sent at that time was accepted."""
        with self._guard:
            if self._accepted_at is None or sent_at > self._accepted_at:
                self._accepted_at = sent_at

    def end(self) -> None:
        """The lease is lost: set the flag and tell whoever asked to be told."""
        with self._guard:
            if self._over.is_set():
                return
            self._over.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            _call_quietly(callback)

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once when the lease ends; at once if it has."""
        with self._guard:
            if not self._over.is_set():
                self._callbacks.append(callback)
                return
        _call_quietly(callback)

    def wait(self, seconds: float) -> bool:
        """Sleep, or return ``True`` as soon as the lease ends."""
        return self._over.wait(seconds)

    def insist(self, call: Callable[[], T]) -> T:
        """Repeat ``call`` while its answer is lost and the lease holds; for calls that may
        repeat."""
        pause = _FIRST_PAUSE
        while True:
            try:
                return call()
            except (NetworkError, StorageError) as error:
                if not self.holds():
                    raise
                _log.warning("no answer for %s, asking again: %s", self.key.execution_id, error)
            self.wait(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)


def _call_quietly(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:
        _log.exception("a callback of on_cancel failed")


class Renewer:
    """Renews leases at their intervals: a heap of due times, and a thread that starts with the
    first."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Lease, AgentKernel]] = []
        self._order = count()
        self._kept: set[Lease] = set()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def keep(self, lease: Lease, kernel: AgentKernel) -> None:
        """Renew ``lease`` from now on, until ``drop`` or its end."""
        with self._changed:
            if self._stopped:
                return
            self._kept.add(lease)
            due = self._clock.monotonic() + lease.interval
            heapq.heappush(self._due, (due, next(self._order), lease, kernel))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._loop, name="rebuno-heartbeat", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def drop(self, lease: Lease) -> None:
        """Renew it no more."""
        with self._changed:
            self._kept.discard(lease)

    def stop(self) -> None:
        """Renew nothing more, for good; leases that are held run out."""
        with self._changed:
            self._stopped = True
            self._kept.clear()
            self._changed.notify()

    def _loop(self) -> None:
        while True:
            with self._changed:
                if self._stopped:
                    return
                seconds = self._seconds_to_next()
                if seconds is None or seconds > 0:
                    self._changed.wait(seconds)
                    continue
            try:
                self.beat_once(self._clock.monotonic())
            except Exception:
                _log.exception("a heartbeat failed")
                self._clock_out()

    def _clock_out(self) -> None:
        """Keep a failing beat from spinning."""
        with self._changed:
            self._changed.wait(_RETRY_SECONDS)

    def _seconds_to_next(self) -> float | None:
        while self._due and self._due[0][2] not in self._kept:
            heapq.heappop(self._due)
        return self._due[0][0] - self._clock.monotonic() if self._due else None

    def beat(self, lease: Lease, kernel: AgentKernel) -> bool:
        """Send one heartbeat now; whether the lease holds after it."""
        sent_at = lease.now()
        (answer,) = kernel.renew([lease.key])
        self._apply(lease, kernel, answer, sent_at)
        return lease.holds()

    def beat_once(self, now: float) -> None:
        """Renew every lease that is due at ``now``, those of one kernel together."""
        for kernel, leases in self._take_due(now):
            sent_at = [lease.now() for lease in leases]
            answers = kernel.renew([lease.key for lease in leases])
            for lease, answer, sent in zip(leases, answers, sent_at, strict=True):
                self._apply(lease, kernel, answer, sent)

    def _take_due(self, now: float) -> list[tuple[AgentKernel, list[Lease]]]:
        groups: dict[int, tuple[AgentKernel, list[Lease]]] = {}
        with self._changed:
            while self._due and self._due[0][0] <= now:
                _, _, lease, kernel = heapq.heappop(self._due)
                if lease in self._kept and not lease.over:
                    groups.setdefault(id(kernel), (kernel, []))[1].append(lease)
        return list(groups.values())

    def _apply(self, lease: Lease, kernel: AgentKernel, answer: Renewal, sent_at: float) -> None:
        if answer is Renewal.ACCEPTED:
            lease.accepted(sent_at)
        elif answer is Renewal.SUPERSEDED or not lease.holds():
            self.drop(lease)
            lease.end()
            return
        pause = lease.interval
        if answer is Renewal.UNKNOWN:
            pause = min(pause, _RETRY_SECONDS)
        with self._changed:
            if lease in self._kept:
                due = self._clock.monotonic() + pause
                heapq.heappush(self._due, (due, next(self._order), lease, kernel))


RENEWER = Renewer()


def _forget_inherited() -> None:
    """A forked child has none of the parent's leases, and not its thread."""
    RENEWER.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_forget_inherited)
