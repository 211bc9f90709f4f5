"""``Listening``: an operator's method for live streams (protocol.md 8.4), in process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ..types import Delta
from .core import Core
from .subscription import Subscription

__all__ = ["Listening", "LiveDeltas"]

_LOOK_EVERY_SECONDS = 1.0


class LiveDeltas:
    """An iterator of the deltas of an execution, as they come. Close it when you leave early: a
    ``with`` block does.

    In a silence it looks now and then whether the execution has ended, and ends as well. It also
    ends with its kernel.
    """

    def __init__(self, subscription: Subscription, ended: Callable[[], bool]) -> None:
        self._subscription = subscription
        self._ended = ended
        self._came: deque[Delta] = deque()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delta:
        while not self._came:
            came = self._subscription.wait(_LOOK_EVERY_SECONDS)
            over = self._subscription.ended or (not came and self._ended())
            self._came.extend(self._subscription.take())
            if over and not self._came:
                self.close()
                raise StopIteration
        return self._came.popleft()

    def close(self) -> None:
        """Listen no more; whoever waits for a delta is woken. Idempotent."""
        self._subscription.close()
        self._subscription.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

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
