"""Whole numbers on a command line."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable

__all__ = ["number"]

_LARGEST = 2**63 - 1


def number(least: int, most: int = _LARGEST) -> Callable[[str], int]:
    """Reads one from ``least`` to ``most``, as the ``type`` of an argument."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text[:20]) <= most):
            above = f"from {least} to {most}" if most < _LARGEST else f"from {least} on"
            raise ArgumentTypeError(f"{text!r} is not a whole number {above}")
        return int(text)

    return read
