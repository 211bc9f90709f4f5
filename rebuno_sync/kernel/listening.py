"""``Listening``: an operator's method for live streams (protocol.md 8.4), in process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Self

from ..closing import Closing
from ..types import Delta
from .core import Core
from .subscription import Subscription

__all__ = ["Listening", "LiveDeltas"]

_LOOK_EVERY_SECONDS = 0.5
"""How long a silence lasts. What other processes publish is here sooner than that."""


class LiveDeltas(Closing):
    """An iterator of the deltas of an execution, as they come. Close it when you leave early: a
    ``with`` block does.

    It ends with the second silence after the execution's end, and with its kernel.
    """

    def __init__(self, subscription: Subscription, ended: Callable[[], bool]) -> None:
        self._subscription = subscription
        self._ended = ended
        self._came: deque[Delta] = deque()
        self._last_look = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delta:
        while not self._came:
            silent = not self._subscription.wait(_LOOK_EVERY_SECONDS)
            over = self._subscription.ended or (silent and self._last_look)
            self._came.extend(self._subscription.take())
            if over and not self._came:
                self.close()
                raise StopIteration
            if silent:
                self._last_look = self._ended()
        return self._came.popleft()

    def close(self) -> None:
        """Listen no more; whoever waits for a delta is woken. Idempotent."""
        self._subscription.close()
        self._subscription.end()

    def __del__(self) -> None:
        # Without a lock: this may run while its thread holds any.
        self._subscription.ended = True


class Listening:
    """What ``Kernel`` says about what running steps receive."""

    core: Core

    def stream(self, execution_id: str) -> LiveDeltas:
        """What running steps of an execution receive, a model's words say, as it comes.

        Listens from the call on: what came before, or faster than it is taken, is missing (the
        recorded results are whole). Iterate over it; it ends a moment after the execution has
        ended, or when it is closed. Raises ``NotFoundError``.
        """
        subscription = self.core.deltas.listen(execution_id)
        return LiveDeltas(subscription, lambda: self.core.records.get(execution_id).status.terminal)
