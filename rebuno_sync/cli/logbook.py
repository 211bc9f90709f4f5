"""An execution's log and steps, in lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..types import Event, Step
from .asked import Operator
from .printing import plain, short, value, when

__all__ = ["all_events", "in_order", "line", "step_row"]

_PAGE = 1000
_SAID_ALREADY = ("execution_id", "status", "step_id", "step_type", "target", "dispatch_id")
_LONGEST = 200


def all_events(kernel: Operator, execution_id: str, after_seq: int = 0) -> Iterator[Event]:
    """Those that there are now, page by page."""
    while page := kernel.events(execution_id, after_seq, _PAGE):
        yield from page
        after_seq = page[-1].event_seq


def line(event: Event, *, full: bool) -> str:
    """An event: its number, when, what, of which step, and the rest of its payload."""
    payload = event.payload
    step = f"{payload['target']} [{payload['step_id'][:8]}]" if "target" in payload else ""
    left_out = _SAID_ALREADY if full else (*_SAID_ALREADY, "policy_hash")
    rest = [f"{key}={_text(it)}" for key, it in payload.items() if key not in left_out]
    said = plain(" ".join(filter(None, [step, *rest])))
    text = f"{event.event_seq:>5}  {when(event.occurred_at)}  {plain(event.type):<24}"
    return f"{text} {said if full else short(said, _LONGEST)}".rstrip()


def _text(given: Any) -> str:
    return given if isinstance(given, str) else value(given)


def in_order(steps: Sequence[Step], events: Sequence[Event]) -> list[Step]:
    """Steps in the order in which they were proposed: a kernel gives them by id."""
    begun: dict[str, int] = {}
    for event in events:
        begun.setdefault(str(event.payload.get("step_id", "")), event.event_seq)
    return sorted(steps, key=lambda step: (begun.get(step.step_id, 0), step.step_id))


def step_row(step: Step, *, full: bool) -> tuple[str, ...]:
    """A step: its id's beginning, status, kind, call, how long it took, and what came of it."""
    call = f"{step.target} {value(step.args)}"
    came = value(step.error) if step.error is not None else ""
    if not came and step.completed_at is not None:
        came = value(step.result)
    took = ""
    if step.started_at is not None and step.completed_at is not None:
        took = f"{(step.completed_at - step.started_at).total_seconds():.3f}"
    cells = (step.step_id[:8], step.status, step.kind, took, call, came)
    return cells if full else tuple(map(short, cells))
