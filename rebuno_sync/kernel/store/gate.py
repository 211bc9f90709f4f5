"""No fork happens while a thread is inside SQLite, and none copies an open connection.

SQLite keeps its locks of a file in process-wide state. A fork copies that state but not the locks,
so a child in which a connection was open believes that it holds locks of its parent's: it loses
commits, or the file. Hence every use of a connection runs inside this gate; before a fork the gate
closes, the connections are closed with it, and parent and child open new ones on their next use.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

__all__ = ["GATE"]


class _Gate:
    """A lock for each thread, held while it is inside; a fork takes them all.

    Built of plain locks alone: an interrupt (Ctrl-C) may strike the main thread between any two
    instructions, and only ``with lock:`` leaves no moment at which a lock is held and not yet
    covered.
    """

    def __init__(self) -> None:
        self._forking = threading.Lock()
        self._of_thread: dict[int, threading.RLock] = {}
        self._taken: list[threading.RLock] = []
        self._close_connections: list[Callable[[], None]] = []

    def on_fork(self, close: Callable[[], None]) -> None:
        """Have ``close`` called before each fork, when nobody is inside."""
        self._close_connections.append(close)

    def forget(self, close: Callable[[], None]) -> None:
        self._close_connections.remove(close)

    def inside(self) -> AbstractContextManager[object]:
        """``with`` it, the calling thread is inside; no fork begins meanwhile."""
        thread = threading.get_ident()
        lock = self._of_thread.get(thread)
        if lock is None:
            with self._forking:
                lock = self._of_thread[thread] = threading.RLock()
        return lock

    def before_fork(self) -> None:
        self._forking.acquire()
        for lock in self._of_thread.values():
            lock.acquire()
            self._taken.append(lock)
        for close in self._close_connections:
            close()

    def after_fork_in_parent(self) -> None:
        while self._taken:
            self._taken.pop().release()
        self._forking.release()

    def after_fork_in_child(self) -> None:
        self.__init__()  # type: ignore[misc]


GATE = _Gate()
os.register_at_fork(
    before=GATE.before_fork,
    after_in_parent=GATE.after_fork_in_parent,
    after_in_child=GATE.after_fork_in_child,
)
