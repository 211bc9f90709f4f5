"""Daemon threads that start on demand: a bounded number of slots, a queue, and no slot that is
lost to a thread that hangs."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar

__all__ = ["Slot", "Workers", "beside", "frames", "stack_of"]

T = TypeVar("T")

_log = logging.getLogger(__name__)

_PACKAGE = str(Path(__file__).parent) + os.sep
_LEADING_ON = (threading.__file__, contextlib.__file__)


def beside(name: str, work: Callable[[], None]) -> None:
    """Run ``work`` once in a daemon thread of its own."""
    threading.Thread(target=work, name=name, daemon=True).start()


def stack_of(ident: int | None) -> str:
    """Where the thread with that identifier is now, for people; empty when it has ended.

    Frames of this package are left out where they only lead to others.
    """
    frame = None if ident is None else frames().get(ident)
    if frame is None:
        return ""
    stack = traceback.extract_stack(frame)
    theirs = [index for index, entry in enumerate(stack) if not _is_ours(entry.filename)]
    if theirs:
        stack[: theirs[-1]] = [stack[index] for index in theirs[:-1]]
    return "".join(traceback.format_list(stack))


def _is_ours(filename: str) -> bool:
    return filename in _LEADING_ON or filename.startswith(_PACKAGE)


_looking = threading.Lock()


def frames() -> dict[int, FrameType]:
    """Where each thread is now, by its identifier."""
    if sys.version_info >= (3, 11, 9):
        return sys._current_frames()
    # A garbage collection in there, while another thread starts or ends, stops the whole process
    # for ever (CPython, gh-106883).
    with _looking:
        collects = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames()
        finally:
            if collects:
                gc.enable()


# A child must not inherit a collector that is off.
os.register_at_fork(
    before=_looking.acquire, after_in_parent=_looking.release, after_in_child=_looking.release
)


class Slot:
    """The claim of one running piece of work on one of the threads there may be."""

    def __init__(self, workers: Workers[Any]) -> None:
        self._workers = workers
        self.held = True

    def surrender(self) -> None:
        """Let other work have the slot: this work was told to stop and may take for ever."""
        self._workers._give_up(self)


class Workers(Generic[T]):
    """Calls ``run(item, slot)`` for every item that it is offered, at most ``size`` at a time.

    A thread that has had nothing to do for ``idle_seconds`` ends.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[T, Slot], None],
        *,
        size: int,
        longest_queue: int,
        idle_seconds: float = 30.0,
    ) -> None:
        self._name = name
        self._run = run
        self._size = size
        self._longest_queue = longest_queue
        self._idle_seconds = idle_seconds
        # ``with`` a plain lock only: one of a condition is not safe from an interrupt.
        self._guard = threading.Lock()
        self._offered = threading.Condition(self._guard)
        self._settled = threading.Condition(self._guard)
        self._queue: deque[T] = deque()
        self._slots = 0
        self._idle = 0
        self._running = 0
        self._closed = False

    def offer(self, item: T) -> bool:
        """Queue an item; ``False`` when closed or when the queue is full.

        Raises ``RuntimeError`` when no thread can be had that would ever take it.
        """
        with self._guard:
            if self._closed or len(self._queue) >= self._longest_queue:
                return False
            self._queue.append(item)
            try:
                self._provide()
            except RuntimeError:
                if not self._slots:
                    self._queue.pop()
                    raise
            return True

    def _provide(self) -> None:
        """See to it that a thread takes what was queued last, as far as there are slots."""
        if len(self._queue) <= self._idle:
            self._offered.notify()
        elif self._slots < self._size:
            thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
            thread.start()
            self._slots += 1

    def _give_up(self, slot: Slot) -> None:
        with self._guard:
            if slot.held:
                slot.held = False
                self._slots -= 1
                if self._queue:
                    self._provide()

    def _loop(self) -> None:
        while taken := self._next():
            slot = Slot(self)
            ended_well = False
            try:
                self._run_quietly(taken[0], slot)
                ended_well = True
            finally:
                if not ended_well:  # By SystemExit, say: this thread ends too.
                    slot.surrender()
                with self._guard:
                    self._running -= 1
                    self._settled.notify_all()
            if not slot.held:
                return  # Its slot went to another thread.

    def _run_quietly(self, item: T, slot: Slot) -> None:
        try:
            self._run(item, slot)
        except Exception:
            _log.exception("a thread of %s failed in what it ran", self._name)

    def _next(self) -> tuple[T] | None:
        """The next item, or ``None`` when this thread has been idle for long."""
        with self._guard:
            self._idle += 1
            self._offered.wait_for(lambda: self._queue or self._closed, self._idle_seconds)
            self._idle -= 1
            if not self._queue:
                self._slots -= 1
                return None
            self._running += 1
            return (self._queue.popleft(),)

    def close(self) -> list[T]:
        """Take nothing more; gives back what was queued and not begun."""
        with self._guard:
            self._closed = True
            left = list(self._queue)
            self._queue.clear()
            self._offered.notify_all()
            self._settled.notify_all()
            return left

    def join(self, seconds: float | None = None) -> bool:
        """Wait until nothing runs or waits, at most that long; whether that is so."""
        with self._guard:
            return self._settled.wait_for(lambda: not self._running and not self._queue, seconds)
