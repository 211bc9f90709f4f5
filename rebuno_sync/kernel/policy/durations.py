"""Durations as Go writes them (protocol.md 11.2): ``300ms``, ``1h30m``."""

from __future__ import annotations

import re

__all__ = ["duration_seconds"]

_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "\u00b5s": 1e-6,
    "\u03bcs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)", re.ASCII)
_WHOLE = re.compile(rf"[-+]?(?:0|(?:{_PART.pattern})+)", re.ASCII)
_LONGEST_SECONDS = 2**63 / 1e9


def duration_seconds(text: str) -> float:
    """Raises ``ValueError`` for what is none."""
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is no duration; write one like 300ms, 30s, 5m or 1h30m")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if seconds >= _LONGEST_SECONDS:
        raise ValueError(f"{text!r} is longer than a duration can be (292 years)")
    return -seconds if text.startswith("-") else seconds
