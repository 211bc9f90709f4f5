"""``Listening``: what running steps receive, as it comes, of a kernel in process (protocol.md
8.4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ..errors import StorageError
from ..types import Delta
from .core import Core
from .subscription import Subscription

__all__ = ["Listening", "LiveStream"]

_LOOK_EVERY_SECONDS = 0.25
"""How often a silent stream looks whether its execution has ended. Pieces of other processes come
sooner than that, so one silence after the end is the end."""


class LiveStream:
    """An iterator of the deltas of an execution, as they come. Close it when you leave early: a
    ``with`` block does.

    It ends when the execution has, and when it is closed, by whatever thread. Raises
    ``StorageError`` when its kernel is closed before.
    """

    def __init__(self, subscription: Subscription, ended: Callable[[], bool]) -> None:
        self._subscription = subscription
        self._ended = ended
        self._pieces: deque[Delta] = deque()
        self._last_look = False
        self._closed = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delta:
        while not (self._pieces or self._closed):
            self._receive()
        if self._closed:
            raise StopIteration
        return self._pieces.popleft()

    def _receive(self) -> None:
        came = self._subscription.wait(_LOOK_EVERY_SECONDS)
        self._pieces.extend(self._subscription.take())
        if self._pieces or self._closed:
            return
        if self._last_look:
            self.close()
        else:
            # Nothing can end a subscription of an open kernel, so asking a closed one raises.
            self._last_look = self._ended()
            if came and not self._last_look:
                raise StorageError("this live stream ended with its kernel", final=True)

    def close(self) -> None:
        """Listen no more. Idempotent."""
        self._closed = True
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
        self._subscription.abandon()


class Listening:
    """What ``Kernel`` says while an execution runs."""

    core: Core

    def stream(self, execution_id: str) -> LiveStream:
        """What running steps of an execution receive, a model's words say, as it comes, from
        whatever process of the file.

        Listens from the call on: what came before, or faster than it is taken, is missing (the
        recorded results are whole). Iterate over it; it ends a moment after the execution has
        ended, or when it is closed. Raises ``NotFoundError``.
        """
        subscription = self.core.deltas.listen(execution_id)
        return LiveStream(subscription, lambda: self.core.records.get(execution_id).status.terminal)
