"""The instant at which a rule decides. Every decision takes it as an argument.

It also gives the ids and the chance that a decision may need.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from ..ports import Clock

__all__ = ["Moment", "utc_text"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Moment(NamedTuple):
    wall: int
    """Microseconds since 1970, written for people to read."""
    monotonic: float
    """Seconds; leases are measured on it."""
    boottime: float
    """Seconds; timers are measured on it."""
    clock: Clock

    @classmethod
    def of(cls, clock: Clock) -> Moment:
        return cls(clock.wall(), clock.monotonic(), clock.boottime(), clock)

    def in_seconds(self, seconds: float) -> tuple[int, float]:
        """When a timer of that length is due: for people, and on the boot-time clock."""
        return self.wall + round(seconds * 1_000_000), self.boottime + seconds

    def new_id(self) -> str:
        return str(self.clock.new_id())

    def random(self) -> float:
        """A number in [0, 1)."""
        return self.clock.random()


def utc_text(microseconds: int) -> str:
    """A time of the wall clock as it is written on the wire (RFC 3339)."""
    return (_EPOCH + timedelta(microseconds=microseconds)).isoformat()[:-6] + "Z"
