"""What the demo prints: lines that fit the terminal, in colour where there is one to see it."""

from __future__ import annotations

import os
import shutil
import textwrap
import unicodedata
from collections.abc import Mapping
from typing import TextIO

__all__ = ["Screen", "clip"]

_NARROWEST = 24
_MOST_LINES = 15
_VERB = 9
_TARGET = 13
_TIME = 8
_STYLES = {
    "title": "1",
    "ran": "32",
    "replayed": "36",
    "cut": "1;31",
    "failed": "1;31",
    "ok": "32",
    "BROKEN": "1;31",
    "dim": "2",
}


class Screen:
    """Writes to ``stream``. ``live``: it is a terminal on which a line can be written over."""

    def __init__(self, stream: TextIO, width: int, *, colour: bool, live: bool) -> None:
        self._stream = stream
        self.width = max(width, _NARROWEST)
        self._colour = colour
        self._live = live
        self._unfinished = False

    @classmethod
    def of(cls, stream: TextIO, environment: Mapping[str, str] = os.environ) -> Screen:
        """As wide as the terminal or ``COLUMNS``, 80 columns in a pipe; ``NO_COLOR`` is obeyed."""
        terminal = stream.isatty() and environment.get("TERM") != "dumb"
        colour = terminal and not environment.get("NO_COLOR")
        return cls(stream, shutil.get_terminal_size().columns, colour=colour, live=terminal)

    def line(self, text: str = "", style: str = "") -> None:
        """One line, cut to the width."""
        self._erase()
        self._put(self._styled(clip(text, self.width), style) + "\n")

    def heading(self, text: str) -> None:
        """An empty line, and a title."""
        self.line()
        self.line(text, "title")

    def paragraph(self, text: str, style: str = "", *, indent: int = 2, label: str = "") -> None:
        """A text on as many lines as it needs, within reason; ``label`` stands before the first."""
        # textwrap counts characters, of which some take two columns.
        wide = cells(text) > len(text)
        parts = textwrap.wrap(
            printable(text),
            self.width // 2 if wide else self.width,
            initial_indent=f"{label:<{indent}}",
            subsequent_indent=" " * indent,
        )
        for part in parts[:_MOST_LINES]:
            self.line(part, style)
        if len(parts) > _MOST_LINES:
            left_out = len(parts) - _MOST_LINES
            self.line(f"{' ' * indent}... and {left_out} more lines", "dim")

    def effect(self, verb: str, target: str, args: str, seconds: float | None = None) -> None:
        """What became of one effect."""
        self._erase()
        self._put(self._effect(verb, target, args, duration(seconds)) + "\n")

    def begin(self, target: str, args: str) -> None:
        """An effect that goes on; on a terminal, until the next line is written over it."""
        if self._live:
            self._erase()
            self._put(self._effect("...", target, args, ""))
            self._unfinished = True

    def _effect(self, verb: str, target: str, args: str, time: str) -> str:
        room = self.width - 2 - _VERB - 1 - _TIME
        what = f"{target:<{_TARGET}} {args}" if args else target
        what = clip(what, room)
        filled = what + " " * (room - cells(what))
        style = verb.partition(" ")[0]
        return f"  {self._styled(f'{verb:<{_VERB}}', style)} {filled}{time:>{_TIME}}".rstrip()

    def _styled(self, text: str, style: str) -> str:
        code = _STYLES.get(style)
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour and code and text else text

    def _erase(self) -> None:
        if self._unfinished:
            self._put("\r\x1b[K")
            self._unfinished = False

    def _put(self, text: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(text.encode(encoding, "replace").decode(encoding))
        self._stream.flush()


def duration(seconds: float | None) -> str:
    """Seconds for people; nothing for ``None``."""
    if seconds is None:
        return ""
    if seconds >= 1:
        return f"{seconds:.1f} s"
    if seconds >= 0.01:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds * 1000:.1f} ms" if seconds >= 0.0001 else "<0.1 ms"


def printable(text: str) -> str:
    """Without what a terminal would obey instead of showing."""
    return "".join(char if char.isprintable() else " " for char in text)


def cells(text: str) -> int:
    """How many columns a text takes."""
    return sum(map(_cells_of, text))


def _cells_of(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clip(text: str, width: int) -> str:
    """As much of a text as fits, with dots where it was cut."""
    text = printable(text)
    if cells(text) <= width:
        return text
    kept, used = "", 3
    for char in text:
        used += _cells_of(char)
        if used > width:
            break
        kept += char
    return kept.rstrip() + "..."
