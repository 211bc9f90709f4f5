"""Bodies for clients that read through urllib3 (requests, botocore)."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from .wire import Reply, Stream

__all__ = ["RawBody", "chunks_of"]

_CHUNK = 64 * 1024


class RawBody(io.RawIOBase):
    """The body of a reply, with what those clients use of a ``urllib3.HTTPResponse``.

    What has arrived is given at once: a read never waits to fill what was asked for.
    """

    def __init__(self, reply: Reply) -> None:
        super().__init__()
        self.status = reply.status
        self.headers = reply.headers
        self.reason = ""
        self.version = 11
        self._rest = reply.body if isinstance(reply.body, bytes) else b""
        self._stream: Stream | None = None if isinstance(reply.body, bytes) else reply.body

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._some(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _some(self, most: int) -> bytes:
        while not self._rest and self._stream is not None:
            try:
                self._rest = next(self._stream)
            except StopIteration:
                self._stream = None
        data, self._rest = self._rest[:most], self._rest[most:]
        return data

    def read(self, amt: int | None = None, decode_content: bool | None = None) -> bytes:
        if amt is None or amt < 0:
            return b"".join(self.stream())
        return self._some(amt)

    def read1(self, amt: int | None = None, decode_content: bool | None = None) -> bytes:
        return self._some(_CHUNK if amt is None or amt < 0 else amt)

    def stream(
        self, amt: int | None = _CHUNK, decode_content: bool | None = None
    ) -> Iterator[bytes]:
        while data := self._some(amt or _CHUNK):
            yield data

    def release_conn(self) -> None:
        self.close()

    def close(self) -> None:
        if not self.closed:
            super().close()
            stream, self._stream = self._stream, None
            if stream is not None:
                stream.close()


def chunks_of(raw: Any) -> Iterator[bytes]:
    """What arrives on a ``urllib3`` response, decoded, as soon as it does."""
    if not hasattr(raw, "read1"):
        yield from raw.stream(_CHUNK, decode_content=True)
        return
    while data := raw.read1(_CHUNK, decode_content=True):
        yield data
    # ``read1`` does not notice the end of a body of known length, and the connection is kept only
    # when that was seen.
    if rest := raw.read(decode_content=True):
        yield rest
