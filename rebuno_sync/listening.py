"""Reading an execution's live stream: Server-Sent Events (protocol.md 8.4)."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Self

import requests

from .closing import Closing
from .errors import NetworkError
from .replies import understood
from .types import Delta

__all__ = ["SILENT_SECONDS", "LiveStream"]

SILENT_SECONDS = 45.0
"""A stream that says nothing for so long has broken off: a kernel says something every 15."""


class LiveStream(Closing):
    """An iterator of the deltas of an execution, as they come. Close it when you leave early: a
    ``with`` block does.

    A kernel never ends a stream; it sends a comment now and then. At each, this looks whether the
    execution has ended, and ends as well. Raises ``NetworkError`` when the stream breaks off.
    """

    def __init__(self, reply: requests.Response, ended: Callable[[], bool]) -> None:
        self._reply = reply
        self._socket: socket.socket | None = getattr(reply.raw.connection, "sock", None)
        self._deltas = _deltas_in(reply, ended)
        self._closed = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delta:
        try:
            return next(self._deltas)
        except Exception:
            if self._closed:  # Libraries say different things of what was closed under them.
                raise StopIteration from None
            raise

    def close(self) -> None:
        """Listen no more, also where another thread waits for what comes next. Idempotent."""
        self._closed = True
        if self._socket is not None:
            with suppress(OSError):  # A thread that reads it holds the reply until that returns.
                self._socket.shutdown(socket.SHUT_RDWR)
        self._reply.close()

    def __del__(self) -> None:
        self.close()


def _deltas_in(reply: requests.Response, ended: Callable[[], bool]) -> Iterator[Delta]:
    try:
        for line in _lines(reply):
            if line.startswith(b"data:"):
                yield _delta(line[5:])
            elif line.startswith(b":") and ended():
                return
    except requests.RequestException as error:
        raise NetworkError(f"the live stream broke off: {error}") from error
    finally:
        reply.close()
    if not ended():
        raise NetworkError("the live stream broke off")


def _lines(reply: requests.Response) -> Iterator[bytes]:
    # Chunks come as they were sent; a body without them would wait until so much has come.
    size = None if getattr(reply.raw, "chunked", False) else 1
    pending = b""
    for chunk in reply.iter_content(size):
        *lines, pending = (pending + chunk).split(b"\n")
        yield from lines


def _delta(text: bytes) -> Delta:
    def read() -> Delta:
        fields = json.loads(text)
        return Delta(str(fields["step_id"]), int(fields["seq"]), str(fields["data"]))

    return understood("a delta", read)
