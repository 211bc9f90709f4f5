"""How many tokens a model call used, read from its recorded response (protocol.md 8.3)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

from ..types import Usage

__all__ = ["usage_of"]

_INPUT = frozenset(
    {"prompt_tokens", "input_tokens", "inputTokens", "promptTokenCount", "prompt_eval_count"}
)
_OUTPUT = frozenset(
    {"completion_tokens", "output_tokens", "outputTokens", "candidatesTokenCount", "eval_count"}
)
_LIMIT = 2**53
"""Greater numbers count no tokens; sums of those below fit SQLite."""
_IN_BYTES = re.compile(rf'"({"|".join(sorted(_INPUT | _OUTPUT))})"\s*:\s*(\d+)')


def usage_of(result: str | None) -> Usage | None:
    """The largest counts in the response, whatever provider's shape it has; ``None`` without any.

    ``result``: the recorded JSON text. Read before a transaction: a long response takes a while.
    """
    if result is None or not (_may_tell(result) or '"base64"' in result):
        return None
    try:
        found = list(_counts(json.loads(result)))
    except (ValueError, RecursionError):
        return None
    used = [
        max((count for key, count in found if key in keys), default=0) for keys in (_INPUT, _OUTPUT)
    ]
    return Usage.model_construct(input_tokens=used[0], output_tokens=used[1]) if any(used) else None


def _may_tell(text: str) -> bool:
    """Whether one of the keys can be in it: they all have one of these parts."""
    return "oken" in text or "eval_count" in text


def _counts(record: Any) -> Iterator[tuple[str, int]]:
    body = record.get("body") if isinstance(record, dict) else None
    if not isinstance(body, str) or not body:
        yield from _scan(record)
    elif record.get("encoding") == "base64":
        text = base64.b64decode(body).decode("latin-1")
        found = ((key, int(count)) for key, count in _IN_BYTES.findall(text))
        yield from ((key, count) for key, count in found if count < _LIMIT)
    else:
        yield from _counts_in_text(body)


def _counts_in_text(body: str) -> Iterator[tuple[str, int]]:
    try:
        yield from _scan(json.loads(body))
    except ValueError:
        for line in body.splitlines():
            # Of a long stream few lines tell it, and only those are parsed.
            if not _may_tell(line):
                continue
            data = line.strip().removeprefix("data:")
            try:
                yield from _scan(json.loads(data))
            except ValueError:
                continue


def _scan(value: Any) -> Iterator[tuple[str, int]]:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += item
        elif isinstance(item, dict):
            for key, inner in item.items():
                if isinstance(inner, int | float) and not isinstance(inner, bool):
                    if (key in _INPUT or key in _OUTPUT) and 0 <= inner < _LIMIT:
                        yield key, int(inner)
                else:
                    waiting.append(inner)
