"""The clock of a server, as far as its ``Date`` headers tell."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from .ports import Clock

__all__ = ["RemoteClock"]

_SECOND = 1_000_000
_TELLING = 2 * _SECOND
"""Microseconds. ``Date`` has whole seconds: a smaller difference is none."""


class RemoteClock:
    """A server's wall clock: this machine's, set by what the server said last where they differ."""

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._heard: tuple[str, int] | None = None

    def hear(self, date: str | None) -> None:
        """The ``Date`` header of an answer that has just come."""
        if date:
            self._heard = (date, self._own.wall())

    def wall(self) -> int:
        """Microseconds since 1970 on the server's clock."""
        return self._own.wall() + self._ahead()

    def _ahead(self) -> int:
        if self._heard is None:
            return 0
        date, heard_at = self._heard
        try:
            said = parsedate_to_datetime(date).timestamp()
        except (ValueError, OverflowError):
            return 0
        ahead = round((said + 0.5) * _SECOND) - heard_at  # The half of the second that is cut off.
        return ahead if abs(ahead) >= _TELLING else 0
