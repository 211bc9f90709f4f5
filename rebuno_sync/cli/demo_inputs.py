"""The texts that the demo reads: those given, or the documentation that comes with the package."""

from __future__ import annotations

import codecs
import os
from collections.abc import Sequence
from pathlib import Path

__all__ = ["LARGEST_BYTES", "MOST_TEXTS", "UnusableText", "check", "packaged", "read_capped"]

LARGEST_BYTES = 64 * 1024
MOST_TEXTS = 20

_PACKAGED = Path(__file__).parent / "demo_texts"


class UnusableText(Exception):
    """A path that was given cannot be read as a text."""


def packaged() -> list[Path]:
    """The package's own documentation."""
    return sorted(_PACKAGED.glob("*.md"))


def read_capped(path: Path) -> str:
    """The first ``LARGEST_BYTES`` of a UTF-8 file; ``ValueError`` when that is no text."""
    with path.open("rb") as file:
        data = file.read(LARGEST_BYTES + 1)
    whole = len(data) <= LARGEST_BYTES
    text = codecs.getincrementaldecoder("utf-8-sig")().decode(data[:LARGEST_BYTES], final=whole)
    if "\0" in text:
        raise ValueError("it contains NUL bytes")
    return text


def check(given: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Each given file once, and remarks on those that are read in part.

    Raises ``UnusableText`` for the first that is missing, unreadable, binary or empty.
    """
    paths = list({os.path.realpath(path): Path(path) for path in given}.values())
    if len(paths) > MOST_TEXTS:
        raise UnusableText(f"{len(paths)} files are too many for a demo; give at most {MOST_TEXTS}")
    remarks = []
    for path in paths:
        _check_one(path)
        size = path.stat().st_size
        if size > LARGEST_BYTES:
            remarks.append(
                f"{path}: {size:,} bytes; the demo reads the first {LARGEST_BYTES:,} of them"
            )
    return paths, remarks


def _check_one(path: Path) -> None:
    try:
        if path.is_dir():
            raise UnusableText(f"{path} is a folder; give the text files in it")
        if path.exists() and not path.is_file():
            raise UnusableText(f"{path} is not a regular file; give a text file")
        text = read_capped(path)
    except OSError as error:
        raise UnusableText(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise UnusableText(f"{path} is not a UTF-8 text ({error}); give a text file") from error
    if not text.strip():
        raise UnusableText(f"{path} is empty; give a file with some text")
