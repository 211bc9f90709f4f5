"""Which scenarios a kernel has, by the generation of the protocol that it speaks.

A test says by its name which rows of protocol.md's Appendix B it shows: ``test_b07_...`` shows B7,
``test_b02_b04_...`` both B2 and B4. What else it belongs to it says with ``@scenario("forks")``. A
deployment of a generation that is not in one of these does not get the test. A test that names
nothing is for every deployment.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

__all__ = ["APPENDIX_B", "Generation", "Road", "applies", "bundle", "over_http", "rows", "scenario"]

F = TypeVar("F", bound=Callable[..., object])


class Generation(Enum):
    """Protocol generations (protocol.md 0.1), and the embedded kernel with its extensions (17)."""

    G0 = "G0"
    G1 = "G1"
    G2 = "G2"
    EMBEDDED = "embedded"


class Road(Enum):
    """How a deployment's kernel is reached."""

    IN_PROCESS = "in process"
    HTTP = "over HTTP"


_ALL = frozenset(Generation)
_FENCED = _ALL - {Generation.G0}
_NEWEST = frozenset({Generation.G2, Generation.EMBEDDED})
_OURS = frozenset({Generation.EMBEDDED})

APPENDIX_B: dict[str, frozenset[Generation]] = {
    "B1": _ALL,  # create
    "B2": _ALL,  # the same submit under a new dispatch
    "B3": _ALL,  # the same submit twice in one dispatch
    "B4": _ALL,  # the same submit after a reclaim
    "B5": frozenset({Generation.G0, Generation.EMBEDDED}),  # a dispatch id that is not its own, G0
    "B6": _FENCED,  # a dispatch id that is not its own
    "B7": _FENCED,  # an old attempt after a reclaim
    "B8": _ALL,  # denied by policy
    "B9": _ALL,  # asking for an approval
    "B10": _OURS,  # a delivery while it is pending: made by hand, the newest kernels make none
    "B11": _ALL,  # granted
    "B12": _ALL,  # granted, begun, and cut down
    "B13": _ALL,  # denied by a person
    "B14": _ALL,  # with a rationale
    "B15": _OURS,  # decided by nobody: others look every ten minutes
    "B16": _ALL,  # approvers
    "B17": _ALL,  # an approval of a model call
    "B18": _ALL,  # webhook refused, then taken
    "B19": _ALL,  # webhook refused for good
    "B20": _ALL,  # webhook taken, and nothing else
    "B21": _ALL,  # signs of life
    "B22": _ALL,  # complete
    "B23": _OURS,  # webhook that hangs: how long is waited is set by hand
    "B24": _ALL,  # rate limit
    "B25": _ALL,  # cancel with an executing step
    "B26": _ALL,  # cancel with a pending approval
    "B27": _ALL,  # submit after cancel
    "B28": _ALL,  # an outcome that is unknown
    "B29": _ALL,  # invalid bundle
    "B30": _ALL,  # argument predicate
    "B31": _OURS,  # a policy that cannot be read: the file is changed by hand
    "B32": _ALL,  # signatures and tokens
    "B33": _ALL,  # terminal steps
    "B34": _ALL,  # live stream
    "B35": _FENCED,  # token budget
    "B36": _NEWEST,  # fork
    "B37": _NEWEST,  # fork and effects that must not run twice
    "B38": _NEWEST,  # fork with a policy of its own
    "B39": _NEWEST,  # parents and sessions
    "B40": _NEWEST,  # subagents of what ended
}
"""The rows of the protocol's conformance scenarios, and the kernels that can be held to each."""

SECTIONS: dict[str, frozenset[Generation]] = {
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
    "judges": _OURS,  # 11.9: elsewhere one may be configured
    "limits are told": _FENCED,  # 7.4: G0 writes no event
    "nameless decisions": _OURS,  # 2.3: G2e too
    "telling approvals": _OURS,  # 3.5 has no more than the step's id
    "sessions": _NEWEST,  # 9.2
    "previous": _NEWEST,  # 9.3
    "subagents": _NEWEST,  # 9.7
    "streams are checked": _NEWEST,  # 8.4
    "early agents": frozenset({Generation.G0, Generation.EMBEDDED}),  # 0.1
    "unlike G0": _NEWEST,  # the fence and ownership, also for agents that know neither
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


_ROWS_IN_NAME = re.compile(r"test_((?:b\d\d_)+)")


def rows(test: Callable[..., object]) -> list[str]:
    """The rows of Appendix B that a test names."""
    named = _ROWS_IN_NAME.match(test.__name__)
    return [f"B{int(row[1:])}" for row in named[1].split("_")[:-1]] if named else []


def scenario(*sections: str) -> Callable[[F], F]:
    """Say what a test belongs to besides the rows in its name."""
    for section in sections:
        if section not in SECTIONS:
            raise KeyError(f"{section!r} is not in the table of scenarios")

    def mark(test: F) -> F:
        test.scenarios = (*sections, *getattr(test, "scenarios", ()))  # type: ignore[attr-defined]
        return test

    return mark


def over_http(test: F) -> F:
    """Say that a test is of what a wire alone has: headers, credentials."""
    test.over_http = True  # type: ignore[attr-defined]
    return test


def applies(
    test: Callable[..., object],
    generation: Generation,
    road: Road,
    agents: Generation | None = None,
) -> bool:
    """Whether a kernel of that generation, reached like that, makes the promise of ``test``.

    ``agents``: of which generation its agent is, if not of the kernel's; it gets the rows of
    Appendix B that its generation has, and nothing else.
    """
    if road is Road.IN_PROCESS and hasattr(test, "over_http"):
        return False
    named = [APPENDIX_B[row] for row in rows(test)]
    if agents is not None and not (named and all(agents in row for row in named)):
        return False
    named += [SECTIONS[section] for section in getattr(test, "scenarios", ())]
    return all(generation in generations for generations in named)
