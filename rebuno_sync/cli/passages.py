"""Which pieces of a text belong to a question: by the words that they share."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["best", "paragraphs", "sentences"]

_SHORTEST_WORD = 4
_LONGEST_PARAGRAPH = 1000
_COMMON = {
    *("about", "does", "from", "have", "into", "that", "their"),
    *("then", "there", "this", "what", "when", "where", "which"),
}


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a plain or Markdown text, each on one line, without headings.

    Of a very long one, its beginning: a model is asked about them.
    """
    blocks = re.split(r"\n\s*\n", text)
    lines = (" ".join(line for line in block.split("\n") if line[:1] != "#") for block in blocks)
    return [" ".join(line.split())[:_LONGEST_PARAGRAPH] for line in lines if line.strip()]


def sentences(text: str) -> list[str]:
    """The sentences of a text; each line ends one."""
    pieces = (piece for line in text.splitlines() for piece in re.split(r"(?<=[.!?])\s+", line))
    return [piece.strip() for piece in pieces if piece.strip()]


def best(pieces: Sequence[str], question: str, limit: int) -> list[str]:
    """At most ``limit`` pieces that share the most words with ``question``, in their own order.

    Of pieces that share as many, the earlier ones.
    """
    wanted = _words(question)
    ranked = sorted(range(len(pieces)), key=lambda n: (-len(wanted & _words(pieces[n])), n))
    return [pieces[n] for n in sorted(ranked[:limit])]


def _words(text: str) -> set[str]:
    words = {word.rstrip("s") for word in re.findall(r"\w+", text.lower())}
    return {word for word in words if len(word) >= _SHORTEST_WORD} - _COMMON
