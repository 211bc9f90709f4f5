"""What the matrix is made of: rows, columns, and rules that say what a cell has to answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from support.folded import Story

from rebuno_sync.types import LeaseKey

if TYPE_CHECKING:
    from .roads import World

__all__ = ["DIRECT", "HTTP", "NO_STEP", "Column", "Row", "Rule", "Scene", "Table", "rule"]

DIRECT, HTTP = "direct", "http"
"""The roads to a kernel."""

NO_STEP = "0" * 64
NO_LEASE = LeaseKey("", "", 0)


@dataclass(frozen=True, slots=True)
class Scene:
    """What a late write is about."""

    execution_id: str = ""
    lease: LeaseKey = NO_LEASE
    step_id: str = NO_STEP
    target: str = "subject"
    """Of the call that the step is."""
    approval_id: str = ""
    key: str = ""
    """An idempotency key, the id of an API key, or the name of a resource."""
    token: str = ""
    session: str = ""
    agent: str = ""
    bystanders: tuple[str, ...] = ()
    """Executions that the write may change besides."""


_CHANGES_NOTHING = frozenset({"execution_terminal", "nothing", "page", "report"})

Events = str | Callable[[Story], str]


class Rule(NamedTuple):
    """Where all words of ``when`` hold, the write is answered like that; the first rule counts.

    ``answer``: a decision, a word for what came back, or ``!`` and the code of an error.
    ``events``: the types that are appended, with blanks between. ``lease``: what the lease is
    worth afterwards, where that changes.
    """

    when: frozenset[str]
    answer: str
    section: str
    events: Events
    lease: str
    road: str

    @property
    def refuses(self) -> bool:
        """Whether nothing at all may have changed."""
        return self.answer.startswith("!") or self.answer in _CHANGES_NOTHING


def rule(
    when: str, answer: str, section: str, events: Events = "", *, lease: str = "", road: str = ""
) -> Rule:
    """``when``: words with blanks between. ``section``: of protocol.md. ``road``: the only one of
    which it holds."""
    return Rule(frozenset(when.split()), answer, section, events, lease, road)


@dataclass(frozen=True, slots=True)
class Row:
    """A state, how to get there, and the words that hold in it."""

    name: str
    reach: Callable[[World], Scene]
    facets: str
    noticed: str = ""
    """Events of what time has brought about before, and that nobody has seen yet."""
    of_step: bool = False
    """Whether it differs from another row in a step only."""
    roads: tuple[str, ...] = (DIRECT, HTTP)


@dataclass(frozen=True, slots=True)
class Column:
    """A write, as it is asked for on each road that has it.

    ``route``: an entry of the table of routes, with ``body``, or what makes it of a scene.
    ``port``: the method of a ``Kernel`` that ``direct`` calls. ``anywhere``: what is no route, and
    is asked in the same way on both roads. ``by_token``: it is asked with the scene's token.
    ``about_step``: whether a step decides on the answer. ``request_id``: it is sent under that.
    """

    name: str
    rules: tuple[Rule, ...]
    route: str = ""
    body: object = None
    query: str = ""
    port: str = ""
    direct: Callable[[World, Scene], object] | None = None
    anywhere: bool = False
    by_token: bool = False
    about_step: bool = False
    request_id: str = ""

    @property
    def roads(self) -> tuple[str, ...]:
        return (DIRECT,) * bool(self.direct) + (HTTP,) * bool(self.route or self.anywhere)

    def expected(self, facets: frozenset[str], road: str) -> Rule:
        for one in self.rules:
            if one.when <= facets and one.road in ("", road):
                return one
        raise LookupError(f"no rule of {self.name!r} covers {sorted(facets)}")


class Table(NamedTuple):
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]

    def cells(self) -> Iterator[tuple[str, Row, Column]]:
        """Road, row and column of each cell."""
        for row in self.rows:
            for column in self.columns:
                if row.of_step <= column.about_step:
                    for road in row.roads:
                        if road in column.roads:
                            yield road, row, column
