"""What commands print: lines for people, JSON for machines.

What agents have recorded is somebody else's text: nothing of it reaches a terminal as a control
character, so that it cannot hide or paint over what a person is to decide about.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

__all__ = ["fields", "of", "plain", "print_json", "short", "table", "value", "when"]

_SHORT = 60


def plain(text: object) -> str:
    """One line of printable characters; others as Python writes them (``\\n``, ``\\x1b``)."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in str(text)
    )


def value(given: Any) -> str:
    """A JSON value on one line."""
    return plain(json.dumps(given, ensure_ascii=False))


def short(text: str, most: int = _SHORT) -> str:
    """The beginning of a long text, with a sign that there is more."""
    return text if len(text) <= most else text[: most - 1] + "…"


def when(time: datetime | None) -> str:
    """A time in UTC, to the second."""
    return "-" if time is None else f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print columns as wide as what is in them."""
    lines = [list(head), *([plain(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())


def fields(named: Iterable[tuple[str, object]]) -> None:
    """Print what there is to say of one thing, a line each; empty texts are left out."""
    said = [(name, plain(text)) for name, text in named if text not in ("", None)]
    width = max((len(name) for name, _ in said), default=0)
    for name, text in said:
        print(f"{name.ljust(width)}  {text}")


def of(thing: BaseModel) -> dict[str, Any]:
    """What travels of a thing, as JSON values by the protocol's names."""
    return thing.model_dump(mode="json", by_alias=True)


def print_json(thing: Any, *, line: bool = False) -> None:
    """Print JSON; ``line``: on one line, as one of many."""
    print(json.dumps(thing, indent=None if line else 2), flush=line)
