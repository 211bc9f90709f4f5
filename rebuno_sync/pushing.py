"""``Pusher``: responses without an end, all of them written by one thread.

A WSGI server keeps a thread for each response that is under way, and a stream of events is under
way for hours. So the server hands the connection over, and its threads are free. A client that
reads slowly holds up nobody: what it does not take in time is dropped by whoever produces it.
"""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from .clock import SYSTEM
from .ports import Pushed
from .workers import beside

if TYPE_CHECKING:
    from socket import socket

__all__ = ["Pusher"]

_STALLED_SECONDS = 60.0
"""A client that takes nothing for so long, though there is something, is given up."""

_READ_BYTES = 4096


def _chunk(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


class _Connection:
    """One client, and what is on its way to it."""

    def __init__(self, sock: socket, head: bytes, source: Pushed, *, chunked: bool) -> None:
        self.sock = sock
        self.source = source
        self.out = bytearray(head)
        self.frame: Callable[[bytes], bytes] = _chunk if chunked else bytes
        self.moved_at = SYSTEM.monotonic()

    def pull(self) -> None:
        """Take what has come, once what was taken before is gone: the rest waits, bounded, at its
        source."""
        if not self.out and (body := self.source.take()):
            self.out += self.frame(body)

    def push(self) -> bool:
        """Send as much as the client takes now; whether it is still there."""
        try:
            while self.out:
                sent = self.sock.send(self.out)
                del self.out[:sent]
                self.moved_at = SYSTEM.monotonic()
                if not self.out:
                    self.pull()
        except BlockingIOError:
            pass
        except OSError:
            return False
        return True

    def reads(self) -> bool:
        """Whether the client is still there; what it says is nothing to us."""
        try:
            return bool(self.sock.recv(_READ_BYTES))
        except BlockingIOError:
            return True
        except OSError:
            return False


class Pusher:
    """Writes what sources have to connections that a server has handed over."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._woken, self._bell = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._bell, False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._ready: set[_Connection] = set()
        self._connections: set[_Connection] = set()
        self._started = self._closing = self._shut = False
        self._ended = threading.Event()

    def adopt(self, sock: socket, head: bytes, source: Pushed, *, chunked: bool) -> None:
        """Own the connection from now on: send ``head``, then what ``source`` has, until either
        ends."""
        sock.setblocking(False)
        connection = _Connection(sock, head, source, chunked=chunked)
        with self._guard:
            if not self._closing:
                self._connections.add(connection)
                if not self._started:
                    self._started = True
                    beside("rebuno-pusher", self._loop)
            refused = self._closing
        if refused:
            self._drop(connection)
        else:
            source.on_more(lambda: self._has_more(connection))

    def _has_more(self, connection: _Connection) -> None:
        with self._guard:
            self._ready.add(connection)
            self._ring()

    def _ring(self) -> None:
        """Under the guard: once closed, the descriptor may be somebody else's."""
        if not self._shut:
            with suppress(BlockingIOError):  # It rings already.
                os.write(self._bell, b"x")

    def close(self) -> None:
        """End every response. Idempotent."""
        with self._guard:
            self._closing, started = True, self._started
            self._ring()
        if started:
            self._ended.wait()
        else:
            self._release()

    def _release(self) -> None:
        with self._guard:
            if not self._shut:
                self._shut = True
                self._selector.close()
                os.close(self._woken)
                os.close(self._bell)

    # -- the thread

    def _loop(self) -> None:
        try:
            while not self._closing:
                self._turn()
        finally:
            with self._guard:
                left, self._connections = self._connections, set()
            for connection in left:
                self._finish(connection)
            self._release()
            self._ended.set()

    def _turn(self) -> None:
        """Wait until something can be done, and do it."""
        for key, events in self._selector.select(self._seconds_to_next()):
            connection: _Connection | None = key.data
            if connection is None:
                with suppress(BlockingIOError):
                    os.read(self._woken, _READ_BYTES)
            elif events & selectors.EVENT_READ and not connection.reads():
                self._drop(connection)
            else:
                self._serve(connection)
        with self._guard:
            ready, self._ready = self._ready & self._connections, set()
        for connection in ready:
            self._serve(connection)
        self._look_at_times()

    def _serve(self, connection: _Connection) -> None:
        ended = connection.source.ended
        connection.pull()
        if not connection.push():
            self._drop(connection)
        elif ended and not connection.out:
            self._finish(connection)
        else:
            self._await(connection)

    def _await(self, connection: _Connection) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.out else 0)
        try:
            self._selector.modify(connection.sock, events, connection)
        except KeyError:
            self._selector.register(connection.sock, events, connection)

    def _seconds_to_next(self) -> float | None:
        with self._guard:
            times = [
                one.moved_at + (_STALLED_SECONDS if one.out else one.source.idle_seconds)
                for one in self._connections
            ]
        return max(min(times) - SYSTEM.monotonic(), 0.0) if times else None

    def _look_at_times(self) -> None:
        now = SYSTEM.monotonic()
        with self._guard:
            connections = list(self._connections)
        for one in connections:
            if one.out and now - one.moved_at >= _STALLED_SECONDS:
                self._drop(one)
            elif not one.out and now - one.moved_at >= one.source.idle_seconds:
                one.out += one.frame(one.source.idle_bytes)
                self._serve(one)

    def _finish(self, connection: _Connection) -> None:
        """Say that nothing comes any more, if the client takes it at once."""
        if not connection.out and connection.frame is _chunk:
            with suppress(OSError):
                connection.sock.send(_chunk(b""))
        self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        with self._guard:
            self._connections.discard(connection)
            self._ready.discard(connection)
        with suppress(KeyError, ValueError, RuntimeError):
            self._selector.unregister(connection.sock)
        connection.sock.close()
        connection.source.close()
