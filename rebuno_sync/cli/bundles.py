"""Policy files as their author sees them: read, checked, and what is wrong pointed at."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

from ..kernel.policy import BundleInvalid, Policy, compiled
from .failing import Refused

__all__ = ["Problem", "checked", "judged", "problem_in", "read_text"]

_PLACE = re.compile(r"line (\d+): (.*)", re.DOTALL)


class Problem(NamedTuple):
    """What is wrong with a file. ``line``: from 1; 0 where no line can be named."""

    file: str
    line: int
    message: str
    text: str
    """The line."""

    def lines(self) -> list[str]:
        """What to tell a person: the place, what is wrong there, and the line."""
        if not self.line:
            return [f"{self.file}: {self.message}"]
        return [f"{self.file}:{self.line}: {self.message}", f"{self.line:>5} | {self.text}"]


def read_text(name: str) -> str:
    """A file, or the standard input for ``-``."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"{name} is no text in UTF-8: {error.reason} at byte {error.start}") from None


def judged(name: str, text: str) -> Policy | Problem:
    """The policy that a text describes, or what is wrong with it."""
    try:
        return compiled(text)
    except BundleInvalid as error:
        return problem_in(name, text, str(error))
    except ImportError as error:
        raise Refused(
            f"{error}; policies need the extra: pip install 'rebuno-sync[kernel]'"
        ) from None


def checked(name: str, text: str) -> Policy:
    """The policy that a text describes. Raises ``Refused``, which points at what is wrong."""
    found = judged(name, text)
    if isinstance(found, Problem):
        raise Refused(*found.lines())
    return found


def problem_in(name: str, text: str, message: str) -> Problem:
    """What a message means that names a line, as those of kernels do."""
    place = _PLACE.search(message)
    if place is None:
        return Problem(name, 0, message, "")
    number, lines = int(place[1]), text.splitlines()
    line = lines[number - 1] if 0 < number <= len(lines) else ""
    return Problem(name, number, place[2], line)
