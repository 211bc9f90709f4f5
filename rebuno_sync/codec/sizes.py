"""How much one recorded value may take.

Kernels take requests of at most 10 MiB (protocol.md 1.1). The embedded kernel could store more in
process, but then a handler would fail on the day on which it moves to another kernel.
"""

from __future__ import annotations

from .. import strict

__all__ = ["MOST_BYTES", "within_limit"]

MOST_BYTES = 10_000_000
"""Of JSON in UTF-8: arguments of a call, a result, an input, an output. What is left of the 10 MiB
is for the words around it."""


def within_limit(text: str, path: str) -> str:
    """``text``; raises ``TypeError`` that tells its size when it is too large to be recorded."""
    if len(text) > MOST_BYTES // 4:  # A character takes at most four bytes.
        size = len(text) if text.isascii() else len(text.encode())
        if size > MOST_BYTES:
            raise strict.NotJSON(
                f"{size:,} bytes of JSON; at most {MOST_BYTES:,} are recorded. Store it elsewhere"
                " and pass its name",
                path=path,
            )
    return text
