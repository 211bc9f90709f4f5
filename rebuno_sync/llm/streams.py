"""Bodies that are read as they arrive: ``Tee`` live, ``Replayed`` from a record."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Self

from ..errors import Signal
from ..outcomes import leaves_the_step
from .deltas import Deltas
from .sockets import Hold

__all__ = ["Replayed", "Tee"]

_CHUNK = 4096
_WHAT_A_CHECK_RAISES = (Signal, KeyboardInterrupt, SystemExit)
_LAST_EVENT = re.compile(
    rb"data: ?\[DONE\]|event: ?(?:message_stop|response\.(?:completed|incomplete|failed))\r?\n"
)
"""After it nothing comes, and some SDKs do not wait for the end of the body."""


class Tee:
    """Passes a stream on byte for byte and keeps it, until its end is told to ``on_end``.

    A second iteration goes on where the first stopped.
    """

    def __init__(
        self,
        chunks: Iterator[bytes],
        close: Callable[[], None],
        deltas: Deltas | None,
        hold: Hold,
        check: Callable[[], None],
    ) -> None:
        self._chunks = chunks
        self._close = close
        self._deltas = deltas
        self._hold = hold
        self._check = check
        self._kept: list[bytes] = []
        self._ended = False
        self.on_end: Callable[[bytes, BaseException | None, bool], None]
        """Called once, with the body so far, what broke it off, and whether it is complete."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        if self._ended:
            raise StopIteration
        try:
            self._check()
            with self._hold:
                chunk = next(self._chunks)
        except StopIteration:
            self._end(None, complete=True)
            raise
        except BaseException as error:
            if leaves_the_step(error):
                self._end(error, complete=False)
            else:
                self._fail(error)
            raise
        self._kept.append(chunk)
        if self._deltas is not None:
            self._deltas.feed(chunk)
        return chunk

    def close(self) -> None:
        """Read no further. What was read is what the call gave, unless the attempt is ending."""
        if self._ended:
            return
        if _has_its_last_event(b"".join(self._kept)):
            self._end(None, complete=True)
            return
        ending = _what_ends_the_attempt()
        if ending is None:
            try:
                self._check()
            except _WHAT_A_CHECK_RAISES as signal:
                ending = signal
        self._end(ending, complete=False)

    def _fail(self, error: BaseException) -> None:
        try:
            self._check()
        except _WHAT_A_CHECK_RAISES as signal:  # A cancel broke it off.
            self._end(signal, complete=False)
            raise
        self._end(error, complete=False)

    def _end(self, error: BaseException | None, *, complete: bool) -> None:
        self._ended = True
        if self._deltas is not None:
            self._deltas.finish()
        with suppress(Exception):  # The connection may be lost; what came counts.
            self._close()
        self.on_end(b"".join(self._kept), error, complete)


class Replayed:
    """A recorded stream; ``error`` is what broke it off."""

    def __init__(self, body: bytes, error: Exception | None = None) -> None:
        self._body = body
        self._error = error
        self._at = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        chunk = self._body[self._at : self._at + _CHUNK]
        if chunk:
            self._at += len(chunk)
            return chunk
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        raise StopIteration

    def close(self) -> None:
        """Nothing is held."""


def _has_its_last_event(body: bytes) -> bool:
    body = body.rstrip()
    start = max(body.rfind(b"\n\n"), body.rfind(b"\n\r\n"))
    return _LAST_EVENT.match(body[start + 1 :].lstrip()) is not None


def _what_ends_the_attempt() -> BaseException | None:
    """The signal or interrupt that unwinds the reader, which then has not chosen to close."""
    error = sys.exc_info()[1]
    while error is not None and not leaves_the_step(error):
        error = error.__context__
    return error
