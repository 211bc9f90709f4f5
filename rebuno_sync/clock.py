"""The only reader of time and randomness, and a clock that tests advance by hand."""

from __future__ import annotations

import os
import random
import secrets
import subprocess
import sys
import threading
import time
import uuid
from functools import cache
from pathlib import Path

__all__ = ["SYSTEM", "ManualClock", "SystemClock", "random_secret"]

_LINUX_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)


def random_secret() -> str:
    """32 random bytes as 43 characters of unpadded base64url."""
    return secrets.token_urlsafe(32)


class _Ids:
    """UUIDv7 (RFC 9562, method 1): ascending within a process, also within one millisecond."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._last = 0

    def next(self, milliseconds: int) -> uuid.UUID:
        stamp = milliseconds << 74 | int.from_bytes(os.urandom(10)) >> 6
        with self._guard:
            # A burst within one millisecond counts up from its first id.
            if stamp <= self._last:
                stamp = self._last + (1 << 32)
            self._last = stamp
        return _uuid7(stamp)


def _uuid7(stamp: int) -> uuid.UUID:
    """Lay 122 free bits around the version and the variant."""
    high, low = stamp >> 62, stamp & (1 << 62) - 1
    return uuid.UUID(int=(high >> 12 << 16 | 7 << 12 | high & 0xFFF) << 64 | 0b10 << 62 | low)


@cache
def _boot_id() -> str:
    if _LINUX_BOOT_ID.exists():
        return _LINUX_BOOT_ID.read_text().strip()
    name = "kern.bootsessionuuid" if sys.platform == "darwin" else "kern.boot_id"
    answer = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=True)
    return answer.stdout.strip()


class SystemClock:
    """The machine's clocks."""

    def __init__(self) -> None:
        self._ids = _Ids()

    def wall(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)

    def boot_id(self) -> str:
        return _boot_id()

    def random(self) -> float:
        return random.random()

    def new_id(self) -> uuid.UUID:
        return self._ids.next(self.wall() // 1000)

    def uuid4(self) -> uuid.UUID:
        """One that tells nothing of when it was made."""
        return uuid.uuid4()

    def renew_after_fork(self) -> None:
        """Forget a lock that another thread may have held at the fork."""
        self._ids = _Ids()


class ManualClock:
    """A clock that stands still until it is advanced. Starts at noon of 1 January 2026."""

    def __init__(self, wall: int = 1_767_268_800_000_000, boot_id: str = "boot-1") -> None:
        self._guard = threading.Lock()
        self._wall = wall
        self._elapsed = 1000.0
        self._boot_id = boot_id
        self._random = random.Random(0)
        self._ids = _Ids()

    def advance(self, seconds: float) -> None:
        """Let time pass, on every clock."""
        with self._guard:
            self._elapsed += seconds
            self._wall += round(seconds * 1_000_000)

    def step_wall(self, seconds: float) -> None:
        """Set the wall clock, as an operator or NTP does; no time passes."""
        with self._guard:
            self._wall += round(seconds * 1_000_000)

    def reboot(self, boot_id: str) -> None:
        """Start the clocks that count from boot anew."""
        with self._guard:
            self._boot_id, self._elapsed = boot_id, 5.0

    def wall(self) -> int:
        return self._wall

    def monotonic(self) -> float:
        return self._elapsed

    def boottime(self) -> float:
        return self._elapsed

    def boot_id(self) -> str:
        return self._boot_id

    def random(self) -> float:
        return self._random.random()

    def new_id(self) -> uuid.UUID:
        return self._ids.next(self._wall // 1000)


SYSTEM = SystemClock()
os.register_at_fork(after_in_child=SYSTEM.renew_after_fork)
