"""``EventStream``: an execution's deltas as Server-Sent Events (protocol.md 8.4)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from ..subscription import Subscription

__all__ = ["EventStream"]


class EventStream:
    """A WSGI body without an end. ``ports.Pushed``: a server that knows it takes what has come
    instead of keeping a thread for it; any other iterates, which waits."""

    status = "200 OK"
    headers = (
        ("Content-Type", "text/event-stream"),
        ("Cache-Control", "no-cache"),
        ("X-Accel-Buffering", "no"),
    )
    idle_seconds = 15.0
    idle_bytes = b": keep-alive\n\n"

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    @property
    def ended(self) -> bool:
        return self._subscription.ended

    def on_more(self, call: Callable[[], None]) -> None:
        self._subscription.on_more(call)

    def take(self) -> bytes:
        return b"".join(
            b"data: %s\n\n" % json.dumps(delta._asdict(), separators=(",", ":")).encode()
            for delta in self._subscription.take()
        )

    def __iter__(self) -> Iterator[bytes]:
        yield self.idle_bytes  # Servers send the head with the first bytes.
        while not self.ended:
            came = self._subscription.wait(self.idle_seconds)
            yield self.take() if came else self.idle_bytes

    def close(self) -> None:
        """The client has gone."""
        self._subscription.close()
