"""How many tokens a model call used up, as its provider says (protocol.md 8.3)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["Usage", "usage_of"]

_INPUT = frozenset(
    {"prompt_tokens", "input_tokens", "inputTokens", "promptTokenCount", "prompt_eval_count"}
)
_OUTPUT = frozenset(
    {
        "completion_tokens",
        "output_tokens",
        "outputTokens",
        "candidatesTokenCount",
        "eval_count",
    }
)

_LIMIT = 2**63
"""Greater numbers, and those that are none, count no tokens."""


class Usage(NamedTuple):
    input_tokens: int
    output_tokens: int


def usage_of(result: str) -> Usage | None:
    """What the recorded result of a model call says of tokens, at its highest; ``None`` where it
    says nothing. ``result``: JSON text, perhaps an HTTP answer whose ``body`` is JSON or a stream
    of ``data:`` lines.
    """
    most = {_INPUT: 0, _OUTPUT: 0}
    for value in _payloads(result):
        for key, number in _numbers(value):
            for keys in most:
                if key in keys:
                    most[keys] = max(most[keys], number)
    usage = Usage(most[_INPUT], most[_OUTPUT])
    return usage if usage != (0, 0) else None


def _payloads(result: str) -> Iterator[Any]:
    value = _parsed(result)
    body = value.get("body") if isinstance(value, dict) else None
    if not isinstance(body, str) or not body:
        yield value
        return
    whole = _parsed(body)
    if whole is not None:
        yield whole
        return
    for line in body.splitlines():
        data = line.strip()
        if data.startswith("data:"):
            yield _parsed(data.removeprefix("data:"))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _numbers(value: Any) -> Iterator[tuple[str, int]]:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            for key, inner in value.items():
                if type(inner) in (int, float):
                    if abs(inner) < _LIMIT:
                        yield key, int(inner)
                else:
                    waiting.append(inner)
