"""How signals end a command."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

__all__ = ["ended_by_signals", "interrupted_at_once"]


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let signals unwind the block, so that no child process and no folder is left behind."""
    with _handled_by({signal.SIGTERM: _leave, signal.SIGHUP: _leave}):
        yield


@contextmanager
def interrupted_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process in the block, whatever it waits for: SQLite waits for a lock
    without ever looking at signals. Nothing in the block may need to be unwound."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    with _handled_by({signal.SIGINT: signal.SIG_DFL}):
        yield


def _leave(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextmanager
def _handled_by(handlers: Mapping[int, Callable[..., object] | int]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
