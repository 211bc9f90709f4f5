"""``Lease``, and what renews every live lease of a process (protocol.md 5.3)."""

from __future__ import annotations

import heapq
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from .clock import SYSTEM
from .errors import APIError, NetworkError, StorageError
from .ports import AgentKernel, Clock
from .replies import asks_for_patience
from .stalling import Moves
from .types import LeaseKey, Renewal
from .workers import Workers

__all__ = ["RENEWER", "Lease", "Renewer"]

T = TypeVar("T")

_log = logging.getLogger(__name__)

_REFUSED = "the execution was cancelled or has ended, or another attempt holds its lease"
_RAN_OUT = "the lease ran out: no heartbeat of it was accepted in time"
_LONGEST_INTERVAL = 30.0
_RETRY_SECONDS = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_LARGEST_BEAT = 100
"""Leases in one beat, where they travel together."""
_MOST_IDLE_ENTRIES = 64
"""How many dropped leases may wait in the heap for their time."""
_IDLE_SECONDS = 1.0
"""After which a thread ends that has nothing to do."""


class Lease:
    """The right of this process to run one attempt, and the flag that says it is over.

    ``seconds``: how long it lasts after the last accepted heartbeat. A lease that was just claimed
    counts as accepted now; one that came by webhook starts with ``accepted_at=None``, needs a
    first beat, and expires counted from its receipt until then.
    ``measured_on``: the clock of its age. A kernel elsewhere goes on while this
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
        self.left_to_run_out = False
        """Set when an attempt was given up while bodies of it still run."""
        self.now = measured_on
        self.moves = Moves(measured_on)
        self._accepted_at = accepted_at
        self._received_at = measured_on()
        self.reason = ""
        """Why it is over, where that is known."""
        self.refused = False
        """Whether it is over because a heartbeat was refused, which does not tell why."""
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
        return self._accepted_at is not None and self.can_hold()

    def can_hold(self) -> bool:
        """Whether it holds, or would if a first heartbeat were accepted now."""
        at = self._received_at if self._accepted_at is None else self._accepted_at
        return self.now() - at < self.seconds and not self._over.is_set()

    def accepted(self, sent_at: float) -> None:
        """A heartbeat sent at that time was accepted."""
        with self._guard:
            if self._accepted_at is None or sent_at > self._accepted_at:
                self._accepted_at = sent_at

    def end(self, reason: str = "") -> None:
        """The lease is lost: set the flag and tell whoever asked to be told."""
        with self._guard:
            if self._over.is_set():
                return
            self.reason = reason
            self._over.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            # Each in a thread of its own: one that blocks or raises a signal holds nobody up.
            try:
                threading.Thread(
                    target=_call_quietly, args=(callback,), name="rebuno-on-cancel", daemon=True
                ).start()
            except RuntimeError:  # None can be had: better here than never.
                _call_quietly(callback)

    def on_end(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` once when the lease ends; at once if it has.

        What is returned takes that back.
        """
        with self._guard:
            if not self._over.is_set():
                self._callbacks.append(callback)
                return lambda: self._take_back(callback)
        _call_quietly(callback)
        return lambda: None

    def _take_back(self, callback: Callable[[], None]) -> None:
        with self._guard:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

    def wait(self, seconds: float) -> bool:
        """Sleep, or return ``True`` as soon as the lease ends."""
        return self._over.wait(seconds)

    def insist(self, call: Callable[[], T], *, once_sent: bool = True) -> T:
        """Repeat ``call`` while its answer is lost, or asks for patience, and the lease can hold.

        ``once_sent``: whether it may also be repeated when the request may have arrived; else only
        when the error says that it is repeatable.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                return call()
            except (NetworkError, StorageError, APIError) as error:
                repeatable = once_sent or (isinstance(error, NetworkError) and error.repeatable)
                if isinstance(error, APIError) and not asks_for_patience(error):
                    raise
                if isinstance(error, StorageError) and error.final:
                    raise
                if not repeatable or not self.can_hold():
                    raise
                level = logging.INFO if isinstance(error, NetworkError) else logging.WARNING
                _log.log(level, "no answer for %s, asking again: %s", self.key.execution_id, error)
            self.wait(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)


def _call_quietly(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:
        _log.exception("a callback of on_cancel failed")


@dataclass(eq=False, slots=True)
class _Kept:
    """A lease that is renewed. ``due``: when its next beat is. ``unanswered_due``: the same while
    one is under way; a request that hangs must not keep the next from being sent."""

    kernel: AgentKernel
    due: float = 0.0
    unanswered_due: float | None = None


class Renewer:
    """Renews leases at their intervals: a heap of due times, a thread that keeps the time, and for
    each kernel a few that send, so that a slow one delays nobody else's beats."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        # ``with`` a plain lock only: one of a condition is not safe from an interrupt (see gate).
        self._guard = threading.Lock()
        self._changed = threading.Condition(self._guard)
        self._due: list[tuple[float, int, Lease]] = []
        self._order = count()
        self._kept: dict[Lease, _Kept] = {}
        self._senders: WeakKeyDictionary[AgentKernel, Workers[_Beat]] = WeakKeyDictionary()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def keep(self, lease: Lease, kernel: AgentKernel) -> None:
        """Renew ``lease`` from now on, until ``drop`` or its end. Once is enough.

        Raises ``RuntimeError`` when no thread can be had.
        """
        with self._guard:
            if self._stopped or lease in self._kept:
                return
            if self._thread is None:  # First: where none can be had, nothing is kept.
                thread = threading.Thread(target=self._loop, name="rebuno-heartbeat", daemon=True)
                thread.start()
                self._thread = thread
            self._kept[lease] = _Kept(kernel)
            self._schedule(lease, self._clock.monotonic() + lease.interval)

    def drop(self, lease: Lease) -> None:
        """Renew it no more."""
        with self._guard:
            if self._kept.pop(lease, None) is not None and not self._kept:
                self._changed.notify()  # The thread ends when nothing comes for a while.
            if len(self._due) > 2 * len(self._kept) + _MOST_IDLE_ENTRIES:
                self._due = [entry for entry in self._due if self._is_valid(entry)]
                heapq.heapify(self._due)

    def hurry(self, lease: Lease) -> None:
        """Send a beat for ``lease`` as soon as possible: somebody says that it is lost."""
        with self._guard:
            if lease in self._kept:
                self._schedule(lease, self._clock.monotonic())

    def stop(self) -> None:
        """Renew nothing more, for good; leases that are held run out."""
        with self._guard:
            self._stopped = True
            self._kept.clear()
            self._changed.notify()
            senders = list(self._senders.values())
        for sender in senders:
            sender.close()

    def _schedule(self, lease: Lease, due: float) -> None:
        self._kept[lease].due = due
        entry = (due, next(self._order), lease)
        heapq.heappush(self._due, entry)
        if self._due[0] is entry:
            self._changed.notify()

    def _is_valid(self, entry: tuple[float, int, Lease]) -> bool:
        kept = self._kept.get(entry[2])
        return kept is not None and kept.due == entry[0]

    def _loop(self) -> None:
        while True:
            with self._guard:
                if self._stopped:
                    return
                if not self._changed.wait_for(lambda: self._kept or self._stopped, _IDLE_SECONDS):
                    self._thread = None
                    return
                seconds = self._seconds_to_next()
                if seconds is None or seconds > 0:
                    self._changed.wait(seconds)
                    continue
            try:
                for beat in self._take_due(self._clock.monotonic()):
                    self._hand_over(beat)
            except Exception:
                _log.exception("a heartbeat failed")
                self._clock_out()

    def _hand_over(self, beat: _Beat) -> None:
        try:
            self._sender(beat.kernel).offer(beat)
        except RuntimeError as error:
            _log.warning("heartbeats wait: %s", error)
            for lease in beat.leases:
                self._apply(lease, Renewal.UNKNOWN, sent_at=0.0)

    def _clock_out(self) -> None:
        """Keep a failing beat from spinning."""
        with self._guard:
            self._changed.wait(_RETRY_SECONDS)

    def _sender(self, kernel: AgentKernel) -> Workers[_Beat]:
        with self._guard:
            sender = self._senders.get(kernel)
            if sender is None:
                sender = self._senders[kernel] = Workers(
                    "rebuno-beat",
                    lambda beat, _: self._send(beat),
                    size=8,
                    longest_queue=1 << 30,
                    idle_seconds=_IDLE_SECONDS,
                )
            return sender

    def _seconds_to_next(self) -> float | None:
        while self._due and not self._is_valid(self._due[0]):
            heapq.heappop(self._due)
        return self._due[0][0] - self._clock.monotonic() if self._due else None

    def beat(self, lease: Lease, kernel: AgentKernel) -> bool:
        """Send one heartbeat now; whether the lease holds after it."""
        self._send(_Beat(kernel, [lease]))
        return lease.holds()

    def secure(self, lease: Lease, kernel: AgentKernel) -> bool:
        """See to it that the kernel accepts a heartbeat of ``lease``, unless it has one already.

        Asks for as long as the lease can hold; whether it holds.
        """
        pause = _FIRST_PAUSE
        while lease.can_hold() and not lease.holds() and not self.beat(lease, kernel):
            lease.wait(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        if not lease.holds():
            lease.end(_RAN_OUT)
        return lease.holds()

    def beat_once(self, now: float) -> None:
        """Renew every lease that is due at ``now``, in this thread."""
        for beat in self._take_due(now):
            self._send(beat)

    def _send(self, beat: _Beat) -> None:
        sent_at = [lease.now() for lease in beat.leases]
        try:
            answers = beat.kernel.renew([lease.key for lease in beat.leases])
        except Exception:
            _log.exception("a heartbeat failed")
            answers = [Renewal.UNKNOWN] * len(beat.leases)
        for lease, answer, sent in zip(beat.leases, answers, sent_at, strict=True):
            self._apply(lease, answer, sent)

    def _take_due(self, now: float) -> list[_Beat]:
        """What is due: those of one kernel together where they travel so, else one by one, several
        at once."""
        beats: list[_Beat] = []
        open_: dict[int, _Beat] = {}
        stalled: list[Lease] = []
        with self._guard:
            while self._due and self._due[0][0] <= now:
                entry = heapq.heappop(self._due)
                if not self._is_valid(entry):
                    continue
                lease = entry[2]
                kept = self._kept[lease]
                if lease.over:
                    kept.unanswered_due = None
                    continue
                if lease.moves.stalled:
                    del self._kept[lease]
                    stalled.append(lease)
                    continue
                self._schedule(lease, now + lease.interval)
                kept.unanswered_due = kept.due
                beat = open_.get(id(kept.kernel))
                most = _LARGEST_BEAT if kept.kernel.renews_together else 1
                if beat is None or len(beat.leases) >= most:
                    beat = open_[id(kept.kernel)] = _Beat(kept.kernel, [])
                    beats.append(beat)
                beat.leases.append(lease)
        for lease in stalled:
            why = lease.moves.give_up()
            _log.warning("execution %s is given up: %s", lease.key.execution_id, why)
            lease.end(why)
        return beats

    def _apply(self, lease: Lease, answer: Renewal, sent_at: float) -> None:
        if answer is Renewal.ACCEPTED:
            lease.accepted(sent_at)
        elif answer is Renewal.SUPERSEDED or not lease.can_hold():
            self.drop(lease)
            lease.refused = answer is Renewal.SUPERSEDED
            lease.end(_REFUSED if lease.refused else _RAN_OUT)
            return
        pause = lease.interval
        if answer is Renewal.UNKNOWN:
            pause = min(pause, _RETRY_SECONDS)
        with self._guard:
            kept = self._kept.get(lease)
            if kept is not None and kept.due == kept.unanswered_due:
                self._schedule(lease, self._clock.monotonic() + pause)


class _Beat(NamedTuple):
    """Heartbeats that one sender sends, one after another or together."""

    kernel: AgentKernel
    leases: list[Lease]


RENEWER = Renewer()


def _forget_inherited() -> None:
    """A forked child has none of the parent's leases, and not its thread."""
    RENEWER.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_forget_inherited)
