"""Where a long JSON text is likely to repeat others: its arrays' members and its long strings.

A chat sends its whole history with each request. Cut at the members of arrays, such requests are
chains that share their beginnings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import NamedTuple

__all__ = ["SHORTEST_PART", "SHORTEST_TEXT", "Cut", "cuts_of"]

SHORTEST_TEXT = 2000
"""Shorter texts are kept as they are."""

SHORTEST_PART = 500
"""Shorter members are put together with those after them."""

_DEEPEST = 3

_VALUE = json.JSONDecoder()
_WHITE = " \t\n\r"


class Cut(NamedTuple):
    """From ``start`` on, ``parts`` follow one another."""

    start: int
    parts: list[str]


def cuts_of(text: str) -> list[Cut]:
    """The cuts of a JSON text, in order; what lies between them repeats as a whole or not at
    all."""
    try:
        return list(_cuts(text, _skip(text, 0), 0))
    except (ValueError, IndexError, RecursionError):
        return []


def _cuts(text: str, at: int, depth: int) -> Iterator[Cut]:
    """Of the value at ``at``."""
    if text[at] == "{" and depth < _DEEPEST:
        for start, end in _values(text, at):
            if end - start >= SHORTEST_PART:
                yield from _cuts(text, start, depth + 1)
    elif text[at] == "[":
        if parts := list(_members(text, at)):
            yield Cut(at + 1, parts)
    else:
        _, end = _VALUE.raw_decode(text, at)
        yield Cut(at, [text[at:end]])


def _values(text: str, at: int) -> Iterator[tuple[int, int]]:
    """Where the values of an object begin and end."""
    at = _skip(text, at + 1)
    while text[at] == '"':
        _, at = scanstring(text, at + 1, True)
        start = _skip(text, _skip(text, at) + 1)
        _, at = _VALUE.raw_decode(text, start)
        yield start, at
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _members(text: str, at: int) -> Iterator[str]:
    """An array's members with what stands before each, short ones together; what is left at the
    end is none of them."""
    begin = at + 1
    at = _skip(text, begin)
    while text[at] != "]":
        _, at = _VALUE.raw_decode(text, at)
        if at - begin >= SHORTEST_PART:
            yield text[begin:at]
            begin = at
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    while text[at] in _WHITE:
        at += 1
    return at
