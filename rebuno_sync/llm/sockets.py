"""Cutting short what a thread waits for on a socket, whatever library reads it.

A blocked read returns when its socket is shut down from another thread. Which socket that is, the
blocked thread's own stack tells: every library reads in a Python frame that holds it.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import FrameType, TracebackType

from ..workers import frames

__all__ = ["Hold"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
_LONGEST_PURSUIT_SECONDS = 60.0
_OURS = __name__.rpartition(".")[0]


class Hold:
    """One request: the thread that waits on the wire (in a ``with`` block), and the right of
    another to hang up."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._thread: int | None = None
        self._maker = threading.get_ident()
        self._released = threading.Event()

    def __enter__(self) -> None:
        # Without the guard: whoever hangs up sees it now or in its next look.
        self._thread = threading.get_ident()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Whoever hangs up keeps this from being left: no other request is hit.
        with self._guard:
            self._thread = None

    def release(self) -> None:
        """It is over."""
        self._released.set()

    def hang_up(self) -> None:
        """Shut the sockets that it waits for until it is over: a library may connect again."""
        if threading.get_ident() == self._maker:
            return  # It was over before it began.
        pause, pursued = _FIRST_PAUSE, 0.0
        while not self._released.is_set() and pursued < _LONGEST_PURSUIT_SECONDS:
            with self._guard:
                if self._thread is not None:
                    _shut(self._thread)
            self._released.wait(pause)
            pursued += pause
            pause = min(pause * 2, _LONGEST_PAUSE)


def _shut(thread: int) -> None:
    frame = frames().get(thread)
    while frame is not None and not _is_ours(frame):
        for name in ("self", "sock"):
            found = _socket_of(frame.f_locals.get(name))
            if found is not None:
                with suppress(OSError):
                    # Not ``SSLSocket.shutdown``: it would take the TLS state from the reader.
                    socket.socket.shutdown(found, socket.SHUT_RDWR)
                return
        frame = frame.f_back


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(_OURS)


def _socket_of(thing: object) -> socket.socket | None:
    if isinstance(thing, socket.socket):
        return thing
    for name in ("_sock", "sock", "socket"):
        found = getattr(thing, name, None)
        if isinstance(found, socket.socket):
            return found
    return None
