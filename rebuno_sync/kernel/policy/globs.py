"""Globs (protocol.md 11.5): the syntax of Go's ``path.Match``, but everything matches ``/`` too.

``*`` is any run of characters, ``?`` one of them, ``[a-z]`` and ``[^a-z]`` one of a class, and a
backslash takes the next character as it is. The whole text has to match.
"""

from __future__ import annotations

__all__ = ["globbed"]

_ANY = r"(?s:.)"
_NONE = r"[^\x00-\x{10FFFF}]"


def globbed(pattern: str) -> tuple[str | None, str]:
    """What the glob stands for: the one text that it matches, or ``None`` and an RE2 pattern.

    Raises ``ValueError`` for what is no glob.
    """
    parts: list[str] = []
    plain: list[str] | None = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char in "*?[":
            plain = None
        if char == "*":
            parts.append(rf"{_ANY}*")
        elif char == "?":
            parts.append(_ANY)
        elif char == "[":
            part, at = _class(pattern, at + 1)
            parts.append(part)
            continue
        else:
            if char == "\\":
                at += 1
                if at == len(pattern):
                    raise ValueError(f"{pattern!r} is no glob: it ends in a backslash")
                char = pattern[at]
            parts.append(_literal(char))
            if plain is not None:
                plain.append(char)
        at += 1
    return (None if plain is None else "".join(plain)), "".join(parts)


def _class(pattern: str, at: int) -> tuple[str, int]:
    """The class that begins behind its bracket, and where it has ended."""
    negated = pattern.startswith("^", at)
    at += negated
    ranges: list[str] = []
    first = True
    while first or not pattern.startswith("]", at):
        first = False
        low, at = _member(pattern, at)
        high = low
        if pattern.startswith("-", at):
            high, at = _member(pattern, at + 1)
        if low <= high:
            ranges.append(f"{_literal(low)}-{_literal(high)}")
    if not ranges:
        return (_ANY if negated else _NONE), at + 1
    return f"[{'^' if negated else ''}{''.join(ranges)}]", at + 1


def _member(pattern: str, at: int) -> tuple[str, int]:
    if at < len(pattern) and pattern[at] == "\\":
        at += 1
    elif at < len(pattern) and pattern[at] in "-]":
        raise ValueError(
            f"{pattern!r} is no glob: {pattern[at]!r} in a class needs a backslash before it"
        )
    if at + 1 >= len(pattern):
        raise ValueError(
            f"{pattern!r} is no glob: a class is not closed; a bracket that is meant"
            " as it stands needs a backslash before it"
        )
    return pattern[at], at + 1


def _literal(char: str) -> str:
    return rf"\x{{{ord(char):X}}}"
