"""Whether what a kernel holds of an execution makes sense, whatever has happened to its
processes."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

from rebuno_sync.kernel import Kernel
from rebuno_sync.types import Event, StepStatus

__all__ = ["all_events", "check_file", "check_history"]

_ENDS_OF_STEPS = {"step.succeeded", "step.failed", "step.denied", "step.cancelled"}
_ENDS_OF_EXECUTIONS = {"execution.completed", "execution.failed", "execution.cancelled"}


def all_events(kernel: Kernel, execution_id: str) -> list[Event]:
    events: list[Event] = []
    while page := kernel.events(execution_id, events[-1].event_seq if events else 0, 1000):
        events += page
    return events


def check_history(kernel: Kernel, execution_id: str, *, by_webhook: bool = False) -> None:
    """Assert the invariants of the event log and of the steps of one execution.

    Events are numbered without a gap; each step was proposed and started once and has as many ends
    as its status says; an execution has one end if it has ended and then no step is left open, and
    it is its last event unless it was cancelled. ``by_webhook``: a kernel that dies just after a
    delivery has not recorded it, so attempts may be missing among the acknowledged ones.
    """
    execution = kernel.get(execution_id)
    events = all_events(kernel, execution_id)
    assert [event.event_seq for event in events] == list(range(1, len(events) + 1))
    kinds = [event.type for event in events]
    begun = [kind for kind in kinds if not kind.startswith("resource.")]
    assert begun[:3] == ["execution.created", "execution.started", "dispatch.queued"]
    ends = [kind for kind in kinds if kind in _ENDS_OF_EXECUTIONS]
    assert ends == ([f"execution.{execution.status}"] if execution.status.terminal else [])
    if ends and ends != ["execution.cancelled"]:
        assert kinds[-1] == ends[0]
    attempts: dict[str, list[int]] = {}
    for event in events:
        if event.type == "dispatch.acked":
            attempts.setdefault(event.payload["dispatch_id"], []).append(event.payload["attempt"])
    for numbers in attempts.values():
        if by_webhook:
            assert numbers == sorted(set(numbers))
        else:
            assert numbers == list(range(1, len(numbers) + 1))

    of_steps = Counter((e.payload["step_id"], e.type) for e in events if "step_id" in e.payload)
    steps = kernel.list_steps(execution_id)
    assert {step.step_id for step in steps} == {step_id for step_id, _ in of_steps}
    for step in steps:
        count = {kind: n for (step_id, kind), n in of_steps.items() if step_id == step.step_id}
        assert set(count.values()) == {1}, f"repeated events of {step.target}: {count}"
        assert "step.proposed" in count
        ends_of_step = count.keys() & _ENDS_OF_STEPS
        wanted = {f"step.{step.status}"} if step.status.terminal else set()
        assert ends_of_step == wanted, f"{step.target} is {step.status} but has {ends_of_step}"
        if execution.status == "completed":
            assert step.status is not StepStatus.EXECUTING, f"{step.target} was left open"


def check_file(path: Path) -> None:
    """Assert that SQLite finds nothing wrong with the file."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
