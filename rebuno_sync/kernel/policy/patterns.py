"""Patterns of a bundle's author, in RE2: linear time, whatever they are (protocol.md 11.5, 11.6).

Python's own ``re`` must not see them: one bad pattern would hold up the kernel for hours, and it
reads several constructs in another way.
"""

from __future__ import annotations

from collections.abc import Callable

from .globs import globbed

__all__ = ["PatternInvalid", "matches_glob", "searches"]

Matcher = Callable[[str], bool]


class PatternInvalid(ValueError):
    """A pattern that RE2 does not take, or a glob that is none."""


def searches(pattern: str) -> Matcher:
    """Whether a text has a match somewhere. Raises ``PatternInvalid``."""
    return _compiled(pattern)


def matches_glob(pattern: str) -> Matcher:
    """Whether the glob covers the whole of a text. Raises ``PatternInvalid``."""
    try:
        plain, regex = globbed(pattern)
    except ValueError as error:
        raise PatternInvalid(str(error)) from None
    if plain is not None:
        return plain.__eq__
    return _compiled(rf"\A{regex}\z")


def _compiled(pattern: str) -> Matcher:
    import re2  # type: ignore[import-untyped]

    options = re2.Options()
    options.log_errors = False
    try:
        found = re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        told = error.args[0] if error.args else error
        reason = told.decode(errors="replace") if isinstance(told, bytes) else str(told)
        raise PatternInvalid(f"{pattern!r} is no RE2 pattern: {reason}") from None
    return lambda text: found.search(text.encode("utf-8", "replace").decode()) is not None
