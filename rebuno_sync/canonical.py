"""Canonical JSON (protocol.md 6.1): the one text of a value that a step's identity rests on.

Numbers keep their source text, keys are sorted by code point, strings are escaped as Go does it.
"""

from __future__ import annotations

import json
import re

from rebuno_sync import strict

__all__ = ["canonical_dumps", "canonicalize"]

_SPACE = " \t\n\r"
_CUT_NUMBER = re.compile(r"[.eE]")
_quoted = json.JSONEncoder(ensure_ascii=False).encode


class _Number(str):
    """The source text of a number."""

    __slots__ = ()


def canonical_dumps(value: object, path: str = "value") -> str:
    """The canonical text of a strict JSON value.

    ``path`` is what the message calls ``value``. Raises ``TypeError`` naming the place of what is
    not JSON (see `strict`), NaN, infinities and lone surrogates included.
    """
    return _escaped(strict.ordered(value, path))


def canonicalize(text: str | bytes) -> str:
    """The canonical text of the first JSON value in ``text``; ``null`` if ``text`` is empty.

    What follows that value is ignored (protocol.md 1.1). Bytes that are not UTF-8 and lone
    surrogates become U+FFFD. Raises ``ValueError`` for what is not JSON (NaN and Infinity are not)
    and for containers nested deeper than `strict.MAX_DEPTH`.
    """
    if not text:
        return "null"
    if isinstance(text, bytes):
        # Makes each bad byte a lone surrogate, which the strings then lose like any other.
        text = text.decode("utf-8", "surrogateescape")
    source = text.lstrip(_SPACE)
    try:
        value, end = _DECODER.raw_decode(source)
        if isinstance(value, _Number) and _CUT_NUMBER.match(source, end):
            raise ValueError("invalid JSON: a number that breaks off")
        return _escaped(_text(value, strict.MAX_DEPTH))
    except json.JSONDecodeError as error:
        raise ValueError(f"invalid JSON: {error}") from None
    except RecursionError:
        raise _too_deep() from None


def _text(value: object, levels: int) -> str:
    if isinstance(value, str):
        return value if type(value) is _Number else _quoted(strict.mended(value))
    if isinstance(value, (dict, list)) and not levels:
        raise _too_deep()
    if isinstance(value, dict):
        members = [f"{_quoted(key)}:{_text(value[key], levels - 1)}" for key in sorted(value)]
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join([_text(item, levels - 1) for item in value]) + "]"
    return "null" if value is None else "true" if value else "false"


def _escaped(text: str) -> str:
    """What Go's encoder escapes beyond JSON's needs; such a character only occurs in strings."""
    text = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    if text.isascii():
        return text
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _too_deep() -> ValueError:
    return ValueError(f"invalid JSON: nested deeper than {strict.MAX_DEPTH} levels")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    # Mended here and not when written: only the source order tells which duplicate is the last.
    return {strict.mended(key): value for key, value in pairs}


def _no_constant(name: str) -> object:
    raise ValueError(f"invalid JSON: {name} is not JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_float=_Number,
    parse_int=_Number,
    parse_constant=_no_constant,
)
