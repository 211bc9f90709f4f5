"""``Subscription``: one listener to the deltas of one execution."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from ..types import Delta

__all__ = ["LONGEST_QUEUE", "Subscription"]

LONGEST_QUEUE = 64


class Subscription:
    """One listener to one execution. What it does not take in time is dropped (overflow)."""

    def __init__(self, execution_id: str, leave: Callable[[Subscription], None]) -> None:
        self.execution_id = execution_id
        self.ended = False
        """Nothing comes any more: the kernel is closed."""
        self._leave = leave
        self._arrived = threading.Condition()
        self._queue: deque[Delta] = deque()
        self._on_more: Callable[[], None] | None = None

    def on_more(self, call: Callable[[], None]) -> None:
        """Have ``call`` called when there may be something to take; it must not wait."""
        self._on_more = call
        call()

    def put(self, delta: Delta) -> None:
        with self._arrived:
            if len(self._queue) < LONGEST_QUEUE:
                self._queue.append(delta)
            self._arrived.notify()
        self._call()

    def end(self) -> None:
        with self._arrived:
            self.ended = True
            self._arrived.notify()
        self._call()

    def _call(self) -> None:
        if self._on_more is not None:
            self._on_more()

    def take(self) -> list[Delta]:
        """What has come and was not taken yet."""
        with self._arrived:
            taken = list(self._queue)
            self._queue.clear()
            return taken

    def wait(self, seconds: float) -> bool:
        """Wait until there is something to take, or the end; whether there is."""
        with self._arrived:
            return self._arrived.wait_for(lambda: bool(self._queue) or self.ended, seconds)

    def close(self) -> None:
        """Listen no more. Idempotent."""
        self._leave(self)
