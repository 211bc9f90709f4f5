"""Which scenarios a kernel has, by the generation of the protocol that it speaks.

A test names its row with ``@scenario("B7")``; a deployment of a generation that is not in that row
does not get the test. A test without a row is for every deployment.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TypeVar

__all__ = ["Generation", "applies", "bundle", "scenario"]

F = TypeVar("F", bound=Callable[..., object])


class Generation(Enum):
    """Protocol generations (protocol.md 0.1), and the embedded kernel with its extensions (17)."""

    G0 = "G0"
    G1 = "G1"
    G2 = "G2"
    EMBEDDED = "embedded"


_ALL = frozenset(Generation)
_FENCED = _ALL - {Generation.G0}
_NEWEST = frozenset({Generation.G2, Generation.EMBEDDED})
_OURS = frozenset({Generation.EMBEDDED})

ROWS: dict[str, frozenset[Generation]] = {
    # protocol.md, Appendix B
    "B1": _ALL,
    "B2": _ALL,
    "B3": _ALL,
    "B4": _ALL,
    "B6": _FENCED,
    "B7": _FENCED,
    "B8": _ALL,
    "B9": _ALL,
    "B11": _ALL,
    "B12": _ALL,
    "B13": _ALL,
    "B14": _ALL,
    "B16": _ALL,
    "B17": _ALL,
    "B20": _ALL,
    "B21": _ALL,
    "B22": _ALL,
    "B24": _ALL,
    "B25": _ALL,
    "B26": _ALL,
    "B27": _ALL,
    "B28": _ALL,
    "B29": _ALL,
    "B30": _ALL,
    "B33": _ALL,
    "B35": _FENCED,
    "B36": _NEWEST,
    "B37": _NEWEST,
    "B38": _NEWEST,
    "B39": _NEWEST,
    "B40": _NEWEST,
    # sections
    "fence": _FENCED,  # 5.4
    "occurrences": _ALL,  # 6.3
    "outcome conflicts": _FENCED,  # 8.1 (3)
    "cancel conflicts": _NEWEST,  # 9.4: G0 says execution_terminal
    "idempotency keys": _NEWEST,  # 9.1
    "unknown is not found": _NEWEST,  # 2.1.3, 2.2: G0 answers null
    "events": _ALL,  # 10
    "forks": _NEWEST,  # 9.5
    "policy tests": _FENCED,  # 11.10
    "document order": _FENCED,  # 11.4
    "strict bundles": _NEWEST,  # 11.3
    "raw arguments": _NEWEST,  # 11.6
    "decisions name their rule": _NEWEST,  # 3.3
    "parking": _FENCED,  # 7.4
    "limits are told": _FENCED,  # 7.4: G0 writes no event
    "nameless decisions": _OURS,  # 2.3: G2e too
    "telling approvals": _OURS,  # 3.5 has no more than the step's id
    "prompt timeouts": _OURS,  # 12: others look every ten minutes
    "sessions": _NEWEST,  # 9.2
    "previous": _NEWEST,  # 9.3
    "subagents": _NEWEST,  # 9.7
    "release": _OURS,  # 17
    "wake": _OURS,  # 17
    "attempts": _OURS,  # 17
    "strikes": _OURS,  # a settled step clears them; others count claims of a dispatch
    # what a kernel elsewhere cannot be held to
    "alone": _OURS,  # everything in the kernel is this scenario's
    "on demand": _OURS,  # nothing is delivered, and no time passes, but when the scenario says so
}


def bundle(
    target: str, then: str, generation: Generation = Generation.EMBEDDED, *, when: str = ""
) -> str:
    """A policy that allows everything but what one rule, ``ask``, says of a target."""
    priority = "priority: 1, " if generation is Generation.G0 else ""
    where = f"target: {target}, {when}" if when else f"target: {target}"
    rule = f"{{id: ask, {priority}when: {{{where}}}, then: {then}}}"
    return f"default_action: allow\nrules:\n  - {rule}\n"


def scenario(*rows: str) -> Callable[[F], F]:
    """Say which rows of the table a test belongs to."""
    for row in rows:
        if row not in ROWS:
            raise KeyError(f"{row!r} is no row of the table of scenarios")

    def mark(test: F) -> F:
        test.scenarios = (*rows, *getattr(test, "scenarios", ()))  # type: ignore[attr-defined]
        return test

    return mark


def applies(test: Callable[..., object], generation: Generation) -> bool:
    """Whether a kernel of that generation makes the promise of ``test``."""
    return all(generation in ROWS[row] for row in getattr(test, "scenarios", ()))
