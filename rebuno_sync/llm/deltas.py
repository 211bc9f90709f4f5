"""Pieces of a stream, published while it arrives and without holding up who reads it.

Threads beside the reader send them. When the kernel is slower than the provider, pieces are
dropped; a gap in ``seq`` tells (protocol.md 8.4, 13.9).
"""

from __future__ import annotations

import codecs
import os
import threading
from collections import deque

from ..clock import SYSTEM
from ..context import ExecutionContext
from ..workers import Slot, Workers

__all__ = ["Deltas"]

_ENOUGH_CHARACTERS = 2000
_ENOUGH_SECONDS = 0.05
_LONGEST_PIECE = 1750
"""Characters: at most 7,000 bytes."""
_MOST_WAITING = 64
_PATIENCE_SECONDS = 0.2
"""How long the end of a stream waits for its last pieces to be sent."""


class Deltas:
    """What is published of one step's stream."""

    def __init__(self, context: ExecutionContext, step_id: str) -> None:
        self._context = context
        self._step_id = step_id
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._pending = ""
        self._flushed_at = SYSTEM.monotonic()
        self._seq = 0
        self._guard = threading.Lock()
        self._changed = threading.Condition(self._guard)
        self._waiting: deque[tuple[int, str]] = deque()
        self._sending = False

    def feed(self, chunk: bytes) -> None:
        """A chunk has arrived."""
        self._pending += self._decode(chunk)
        now = SYSTEM.monotonic()
        late = now - self._flushed_at >= _ENOUGH_SECONDS
        if self._pending and (late or len(self._pending) >= _ENOUGH_CHARACTERS):
            self._flush()
            self._flushed_at = now

    def finish(self) -> None:
        """No more arrives; waits a moment until what is left is sent, for then the step ends."""
        self._pending += self._decode(b"", True)
        self._flush()
        with self._guard:
            self._changed.wait_for(lambda: not self._sending, _PATIENCE_SECONDS)
            self._waiting.clear()

    def _flush(self) -> None:
        text, self._pending = self._pending, ""
        for start in range(0, len(text), _LONGEST_PIECE):
            self._offer(text[start : start + _LONGEST_PIECE])

    def _offer(self, piece: str) -> None:
        with self._guard:
            seq, self._seq = self._seq, self._seq + 1
            if len(self._waiting) >= _MOST_WAITING:
                return
            self._waiting.append((seq, piece))
            if not self._sending:
                self._sending = _senders.offer(self)

    def send_waiting(self) -> None:
        """Send what waits, in order. A piece that cannot be sent is lost."""
        while True:
            with self._guard:
                if not self._waiting:
                    self._sending = False
                    self._changed.notify_all()
                    return
                seq, piece = self._waiting.popleft()
            try:
                self._context.publish_delta(self._step_id, seq, piece)
            except Exception:  # Nobody's answer depends on it.
                continue


def _send(deltas: Deltas, slot: Slot) -> None:
    deltas.send_waiting()


def _new_senders() -> Workers[Deltas]:
    return Workers("rebuno-deltas", _send, size=8, longest_queue=1024)


_senders = _new_senders()


def _renew_senders() -> None:
    """A forked child has none of the parent's threads."""
    global _senders
    _senders = _new_senders()


os.register_at_fork(after_in_child=_renew_senders)
