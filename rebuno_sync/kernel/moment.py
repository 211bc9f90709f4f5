"""The instant at which a rule decides. Every decision takes it as an argument."""

from __future__ import annotations

from typing import NamedTuple

from ..ports import Clock

__all__ = ["Moment"]


class Moment(NamedTuple):
    wall: int
    """Microseconds since 1970, written for people to read."""
    monotonic: float
    """Seconds; leases are measured on it."""
    boottime: float
    """Seconds; timers are measured on it."""

    @classmethod
    def of(cls, clock: Clock) -> Moment:
        return cls(clock.wall(), clock.monotonic(), clock.boottime())

    def in_seconds(self, seconds: float) -> tuple[int, float]:
        """When a timer of that length is due: for people, and on the boot-time clock."""
        return self.wall + round(seconds * 1_000_000), self.boottime + seconds
