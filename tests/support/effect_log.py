"""A file in which effects leave a line that survives the death of their process."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

__all__ = ["EffectLog", "Line"]


class Line(NamedTuple):
    """One time that the body of an effect ran."""

    label: str
    token: str
    """A random word of that very run of the body, or one that it chose."""
    at: int
    """Microseconds since 1970."""
    pid: int


class EffectLog:
    """What really happened, as opposed to what a kernel recorded. Any number of processes
    append. ``synced``: whether a line also survives the death of the machine.
    """

    def __init__(self, path: str | os.PathLike[str], *, synced: bool = True) -> None:
        self.path = Path(path)
        self._synced = synced

    def append(self, label: str, token: str = "") -> str:
        """Write that the effect called ``label`` happens now; its token, once that is
        written."""
        token = token or os.urandom(6).hex()
        text = f"{label} {token} {time.time_ns() // 1000} {os.getpid()}\n"
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(fd, text.encode())
            if self._synced:
                os.fsync(fd)
        finally:
            os.close(fd)
        return token

    def lines(self) -> list[Line]:
        if not self.path.exists():
            return []
        lines = []
        for text in self.path.read_text().splitlines():
            label, token, at, pid = text.rsplit(" ", 3)
            lines.append(Line(label, token, int(at), int(pid)))
        return lines

    def of(self, label: str) -> list[Line]:
        """Every time that this effect ran, in order."""
        return [line for line in self.lines() if line.label == label]

    def count(self, label: str) -> int:
        return len(self.of(label))
