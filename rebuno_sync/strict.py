"""Strict JSON: which Python values are JSON as they are, and where the first one sits that is not.

JSON is ``dict`` with ``str`` keys, ``list``, ``tuple``, ``str``, ``int``, ``float``, ``bool`` and
``None``. Subclasses count as what they extend (an ``IntEnum`` is its number). NaN, the infinities
and lone surrogates are not JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

__all__ = ["ANNOTATE", "MAX_DEPTH", "NotJSON", "compact", "mended", "ordered", "plain", "segment"]

MAX_DEPTH = 200
"""How deep containers may nest.

Python 3.11 has 1,000 frames for everything: frameworks and queues use up to 300 before a handler
starts, and the slow paths here two for each level; pydantic's reader of JSON stops at 200. A fixed
limit gives the same answer on a first run and on a replay that starts from another stack.
"""

ANNOTATE = "annotate it with its type (one that pydantic can serialise) or convert it first"

_SURROGATE = re.compile("[\ud800-\udfff]")
_LEAVES = frozenset({str, int, float, bool, type(None)})
_ONLY_STR = frozenset({str})
_DIGITS_ALWAYS_WRITABLE = 14_000
"""In bits; beyond about 4,300 decimal digits Python refuses to write or read an int."""

_compact = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_ordered = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
).encode


class NotJSON(TypeError):
    """A value is not JSON: the message names where it is and the next step."""

    def __init__(self, problem: str, offender: object = None, path: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.offender = offender
        self.path = path

    def __str__(self) -> str:
        path = self.path
        if len(path) > 300:
            path = f"{path[:150]}...{path[-120:]}"
        return f"{path}: {self.problem}" if path else self.problem

    def __reduce__(self) -> tuple[object, ...]:
        # What it objects to may not pickle.
        return NotJSON, (self.problem, None, self.path)


def compact(value: object, path: str) -> str:
    """``value`` as compact JSON text, keys in their own order. Raises `NotJSON` naming ``path``."""
    return _written(_compact, value, path)


def ordered(value: object, path: str) -> str:
    """``value`` as compact JSON text, keys by code point. Raises `NotJSON` naming ``path``."""
    return _written(_ordered, value, path)


def plain(value: object, path: str) -> object:
    """``value`` rebuilt from exactly JSON's own types. Raises `NotJSON` naming ``path``."""
    try:
        return _rebuilt(value, {})
    except NotJSON as error:
        error.path = path + error.path
        raise
    except RecursionError:
        raise _too_deep(value, path) from None


def mended(text: str) -> str:
    """``text`` with U+FFFD for each lone surrogate."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def segment(key: object) -> str:
    """How a path names an entry: ``.lock``, ``[3]``, ``['a b']``."""
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"


def _written(encode: Callable[[object], str], value: object, path: str) -> str:
    # json writes an int key as text without a word, so its answer alone proves nothing.
    try:
        text = encode(value)
        exact = _is_exact(value)
    except (TypeError, ValueError, RecursionError):
        exact = False
    if not exact:
        rebuilt = plain(value, path)
        try:
            text = encode(rebuilt)
        except RecursionError:
            raise _too_deep(value, path) from None
    if not (text.isascii() or _is_sound(text)):
        plain(value, path)
    return text


def _is_exact(value: object) -> bool:
    """Whether only JSON's own types occur, not too deep. ``value`` must not contain itself."""
    if type(value) in _LEAVES:
        return True
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[object] = []
        for node in level:
            if type(node) is dict:
                if not _ONLY_STR.issuperset(map(type, node)):
                    return False
                inner += [item for item in node.values() if type(item) not in _LEAVES]
            elif type(node) is list or type(node) is tuple:
                inner += [item for item in node if type(item) not in _LEAVES]
            else:
                return False
        if not inner:
            return True
        level = inner
    return False


def _rebuilt(value: object, around: dict[int, None]) -> object:
    """``around`` holds the ids of the containers that are being rebuilt, outermost first."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        text = str.__str__(value)
        if not _is_sound(text):
            raise NotJSON("the text holds a lone surrogate; replace it before it is stored", value)
        return text
    if isinstance(value, int):
        return _whole(value)
    if isinstance(value, float):
        number = float.__float__(value)
        if number - number != 0.0:
            raise NotJSON(f"{number} is not JSON; use None or a text for it", value)
        return number
    if not isinstance(value, (dict, list, tuple)):
        name = type(value).__name__
        raise NotJSON(f"{name} is not JSON; {ANNOTATE}", value)
    if id(value) in around:
        raise NotJSON("contains itself; JSON has no references", value)
    if len(around) == MAX_DEPTH:
        raise _too_deep(value)
    around[id(value)] = None
    rebuilt = _mapping(value, around) if isinstance(value, dict) else _sequence(value, around)
    del around[id(value)]
    return rebuilt


def _mapping(value: dict[object, object], around: dict[int, None]) -> dict[str, object]:
    rebuilt: dict[str, object] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            kind = type(key).__name__
            parts = isinstance(key, tuple | frozenset)
            hint = "use str keys" if parts else f"annotate dict[{kind}, ...] or use str keys"
            raise NotJSON(f"the key {key!r} is not a str; {hint}", value)
        name = str.__str__(key)
        if not _is_sound(name):
            raise NotJSON(f"the key {name!a} holds a lone surrogate; replace it", value)
        if name in rebuilt:
            raise NotJSON(f"two keys are both written {name!r}", value)
        try:
            rebuilt[name] = _rebuilt(item, around)
        except NotJSON as error:
            error.path = segment(name) + error.path
            raise
    return rebuilt


def _sequence(value: list[object] | tuple[object, ...], around: dict[int, None]) -> list[object]:
    rebuilt: list[object] = []
    for index, item in enumerate(value):
        try:
            rebuilt.append(_rebuilt(item, around))
        except NotJSON as error:
            error.path = segment(index) + error.path
            raise
    return rebuilt


def _whole(value: int) -> int:
    number = int.__index__(value)
    if number.bit_length() > _DIGITS_ALWAYS_WRITABLE:
        try:
            int.__repr__(number)
        except ValueError:
            raise NotJSON("an int of more than 4,300 digits; write it as text", value) from None
    return number


def _is_sound(text: str) -> bool:
    """Whether UTF-8 can hold ``text``: it cannot hold a lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _too_deep(value: object, path: str = "") -> NotJSON:
    return NotJSON(f"nested deeper than {MAX_DEPTH} levels", value, path)
