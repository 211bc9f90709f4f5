"""Webhooks on their way out: ``ports.Deliver`` over HTTP, on connections that are kept."""

from __future__ import annotations

import http.client
import io
import socket
import threading
from collections.abc import Sequence
from urllib.parse import urljoin, urlsplit

from urllib3.connection import HTTPConnection

from .clock import SYSTEM
from .errors import NetworkError
from .ports import Clock
from .transport import Transport

__all__ = ["HttpDeliver"]

_MOST_REDIRECTS = 5
_KEEPS_METHOD = frozenset({307, 308})
_MOST_DRAINED_BYTES = 64 * 1024


class HttpDeliver:
    """Sends webhooks. Thread-safe; an answer is waited for ``timeout`` seconds in all.

    Redirects are followed that keep the method (307, 308); any other is an answer: what follows it
    would not be the webhook.
    """

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._receivers: dict[str, _Receiver] = {}

    def __call__(
        self, url: str, headers: Sequence[tuple[str, str]], body: bytes, timeout: float
    ) -> int:
        limit = self._clock.monotonic() + timeout
        for _ in range(_MOST_REDIRECTS):
            parts = urlsplit(url)
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            if not target.isascii() or not target.isprintable() or " " in target:
                raise ValueError("its path has characters that must be escaped")
            receiver = self._receiver(f"{parts.scheme}://{parts.netloc}")
            status, location = receiver.post(target, headers, body, limit)
            if status not in _KEEPS_METHOD or not location:
                return status
            url = urljoin(url, location)
        return status

    def _receiver(self, base_url: str) -> _Receiver:
        with self._guard:
            receiver = self._receivers.get(base_url)
            if receiver is None:
                receiver = self._receivers[base_url] = _Receiver(base_url, self._clock)
            return receiver


class _Receiver(Transport):
    """One receiver, by its address; each webhook has a connection to itself."""

    def __init__(self, base_url: str, clock: Clock) -> None:
        super().__init__(base_url, timeout=10.0)
        self._clock = clock

    def post(
        self, target: str, headers: Sequence[tuple[str, str]], body: bytes, limit: float
    ) -> tuple[int, str]:
        """Status and ``Location`` of the answer; ``TimeoutError`` when ``limit`` has passed.

        Nothing is sent twice: behind one address may be several processes, and a second one would
        take the same attempt for a new one.
        """
        try:
            connection = self._connect()
        except NetworkError as error:
            reason = f"cannot connect: {error.__cause__ or error}"
            raise NetworkError(reason, repeatable=error.repeatable) from error
        try:
            return self._exchange(connection, target, headers, body, limit)
        except ConnectionError as error:
            raise NetworkError(f"the answer was lost: {error}") from error

    def _exchange(
        self,
        connection: HTTPConnection,
        target: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        limit: float,
    ) -> tuple[int, str]:
        sock = connection.sock
        try:
            sock.settimeout(max(limit - self._clock.monotonic(), 0.001))
            sock.sendall(self._head("POST", target, headers, body))
            response = http.client.HTTPResponse(
                _Limited(sock, limit, self._clock),  # type: ignore[arg-type]
                method="POST",
            )
            response.begin()
            response.read(_MOST_DRAINED_BYTES)
        except (TimeoutError, ConnectionError):
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NetworkError(
                f"the answer was lost: {str(error) or type(error).__name__}"
            ) from error
        finally:
            connection.close()
        return response.status, response.headers.get("Location", "")


class _Limited:
    """A socket as ``http.client`` reads it, with one limit for all that is read."""

    def __init__(self, sock: socket.socket, limit: float, clock: Clock) -> None:
        self._sock = sock
        self._limit = limit
        self._clock = clock

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Limited._Bytes(self._sock, self._limit, self._clock))

    class _Bytes(io.RawIOBase):
        def __init__(self, sock: socket.socket, limit: float, clock: Clock) -> None:
            self._sock = sock
            self._limit = limit
            self._clock = clock

        def readable(self) -> bool:
            return True

        def readinto(self, into: bytearray | memoryview) -> int:  # type: ignore[override]
            left = self._limit - self._clock.monotonic()
            if left <= 0:
                raise TimeoutError("the limit has passed")
            self._sock.settimeout(left)
            return self._sock.recv_into(into)
