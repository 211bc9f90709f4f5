"""Locks between the processes of one machine: byte ranges of one small file, held with ``lockf``.

POSIX record locks end with the process that holds them, also under ``kill -9``, and a forked child
does not inherit them (``flock`` locks it would). They have two traps. Closing *any* descriptor of
the file drops every lock of the process, so each process opens the file once, and re-asserts what
it holds whenever it writes (somebody may have copied the folder). And a blocking wait may fail for
a deadlock that is none, so waiting is polling with a limit.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

from ..errors import StorageError

__all__ = ["WRITE", "LockFile", "owner_byte"]

WRITE = 0
"""The byte whose holder may write the database."""

_FIRST_OWNER = 1024
_FIRST_PAUSE, _LONGEST_PAUSE = 0.000_1, 0.002


def owner_byte(slot: int) -> int:
    """The byte that a living owner of ``slot`` holds."""
    return _FIRST_OWNER + slot


class LockFile:
    """The lock file of one database. Locks belong to the process, not to a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open()

    def _open(self) -> None:
        path = self.path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(
                f"cannot open the lock file {path}: {error.strerror}. The folder must exist and be"
                " writable; name another file with REBUNO_DB or Kernel(path)."
            ) from error
        self.identity = str(os.fstat(self._fd).st_ino)
        """Names the file itself: a lock file that was deleted and made anew says nothing of old
        owners."""

    def follow(self) -> None:
        """Go over to the file that is at the path now, if ours was deleted and made anew.

        Every lock of this process is gone then; owners take a slot in the new one.
        """
        try:
            here = str(self.path.stat().st_ino)
        except FileNotFoundError:
            here = ""
        if here != self.identity:
            old = self._fd
            self._open()
            os.close(old)

    def take(self, byte: int) -> bool:
        """Lock ``byte`` if no other process holds it, and keep it until ``drop`` or the end."""
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except OSError:
            return False
        return True

    def take_within(self, byte: int, seconds: float, monotonic: Callable[[], float]) -> None:
        """Lock ``byte``, waiting for other processes that long, then ``StorageError``."""
        if self.take(byte):
            return
        limit = monotonic() + seconds
        pause = _FIRST_PAUSE
        idle = threading.Event()
        while not self.take(byte):
            if monotonic() >= limit:
                raise StorageError(
                    f"another process has held the write lock {self.path} for {seconds:.0f}"
                    " seconds; is one of them stopped (SIGSTOP, a debugger)? It goes on when that"
                    " process does or ends."
                )
            idle.wait(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    def drop(self, byte: int) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, byte)

    def close(self) -> None:
        """Drop every lock of this process on the file."""
        os.close(self._fd)
