"""The event log of an execution: one line for events of one step that follow one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ..kernel import Kernel
from ..types import Event

__all__ = ["lines", "read"]

_PAGE = 1000


def read(kernel: Kernel, execution_id: str) -> list[Event]:
    """Every event, oldest first."""
    events: list[Event] = []
    while page := kernel.events(execution_id, len(events), _PAGE):
        events += page
    return events


def lines(events: Sequence[Event]) -> Iterator[str]:
    """The log for people. An event that belongs to no step has a line of its own."""
    for step_id, group in groupby(events, lambda event: event.payload.get("step_id")):
        together = list(group)
        if step_id is None:
            for event in together:
                yield f"{event.event_seq:>7}  {event.type}{_detail(event)}"
        else:
            numbers = f"{together[0].event_seq}-{together[-1].event_seq}"
            if len(together) == 1:
                numbers = str(together[0].event_seq)
            words = " ".join(event.type.partition(".")[2] for event in together)
            yield f"{numbers:>7}  {together[0].payload['target']:<13} {words}"


def _detail(event: Event) -> str:
    attempt = event.payload.get("attempt")
    return "" if attempt is None else f"  attempt {attempt}"
