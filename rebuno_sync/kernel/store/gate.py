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

__all__ = ["GATE"]


class _Gate:
    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0
        self._forking = False
        self._close_connections: list[Callable[[], None]] = []

    def on_fork(self, close: Callable[[], None]) -> None:
        """Have ``close`` called before each fork, when nobody is inside."""
        self._close_connections.append(close)

    def forget(self, close: Callable[[], None]) -> None:
        self._close_connections.remove(close)

    def __enter__(self) -> None:
        with self._changed:
            while self._forking:
                self._changed.wait()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1
            if self._forking and not self._inside:
                self._changed.notify_all()

    def before_fork(self) -> None:
        with self._changed:
            while self._forking:
                self._changed.wait()
            self._forking = True
            while self._inside:
                self._changed.wait()
        for close in self._close_connections:
            close()

    def after_fork_in_parent(self) -> None:
        with self._changed:
            self._forking = False
            self._changed.notify_all()

    def after_fork_in_child(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0
        self._forking = False
        self._close_connections.clear()


GATE = _Gate()
os.register_at_fork(
    before=GATE.before_fork,
    after_in_parent=GATE.after_fork_in_parent,
    after_in_child=GATE.after_fork_in_child,
)
