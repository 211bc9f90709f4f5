"""Predicates on a call's arguments (protocol.md 11.6), which are compared as they are written."""

from __future__ import annotations

import json
from typing import NamedTuple

from ...strict import mended
from .patterns import Matcher

__all__ = ["Constraint", "members_of", "value_of"]


class Number(str):
    """A number as it was written."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_float=Number, parse_int=Number)
_quoted = json.JSONEncoder(ensure_ascii=False).encode


class Constraint(NamedTuple):
    """What a value has to be; whatever is ``None`` or empty is not asked."""

    equals: str = ""
    contains: str = ""
    one_of: tuple[str, ...] = ()
    regex: Matcher | None = None

    def holds(self, text: str) -> bool:
        return (
            (not self.equals or text == self.equals)
            and self.contains in text
            and (not self.one_of or text in self.one_of)
            and (self.regex is None or self.regex(text))
        )


def members_of(args: str) -> dict[str, object] | None:
    """The members of the arguments, ``None`` when they are no object."""
    value, _ = _DECODER.raw_decode(args.lstrip())
    return value if isinstance(value, dict) else None


def value_of(members: dict[str, object], key: str) -> str | None:
    """The text of the value that ``key`` names; ``None`` when there is none.

    A key with dots is looked for as it is, and then step by step through objects.
    """
    if key in members:
        return _text(members[key])
    head, dot, rest = key.partition(".")
    inner = members.get(head) if dot else None
    return value_of(inner, rest) if isinstance(inner, dict) else None


def _text(value: object) -> str:
    """A text is itself, everything else is compact JSON in its own order."""
    return mended(value) if type(value) is str else _json(value)


def _json(value: object) -> str:
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, str):
        return _quoted(mended(value))
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quoted(mended(k))}:{_json(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    return "null" if value is None else "true" if value else "false"
