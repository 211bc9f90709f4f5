"""Executions that wait or sleep without a thread and a lease (protocol.md 9.7, `wake` of 17).
Functions of a transaction.

A sleep is a step, and settles like a subagent's: when its time is over, whatever becomes of the
execution meanwhile.
"""

from __future__ import annotations

from ..errors import api_error
from ..types import StepStatus, Wake
from . import suspension
from .moment import Moment
from .store import Connection, tables, wakes
from .store.rows import Standing, StepRow
from .suspension import Entry

__all__ = ["suspend", "wake_due"]

AWAITING_STEPS, SLEEPING = "awaiting_steps", "sleeping"

_LONGEST_SECONDS = 1e9
"""Thirty years are for ever."""
_MOST_AT_ONCE = 500
"""Sleeps that end in one transaction: nobody waits long for the file."""


def suspend(db: Connection, at: Standing, wake: Wake | None, now: Moment) -> bool:
    """Block an execution that waits; whether it does. The lease has been checked."""
    entry: Entry
    if wake is None:
        if not suspension.awaits(db, at.execution):
            return False
        entry = suspension.block(db, at.execution, now, reason=AWAITING_STEPS)
    else:
        step = _step(db, at.execution, wake.step_id)
        waits = [step, *(_step(db, at.execution, it) for it in wake.besides)]
        # A subagent may have ended since the agent looked: nothing would resume the execution.
        if any(it.status is not StepStatus.EXECUTING for it in waits) or wake.seconds <= 0:
            return False
        due_at, due = now.in_seconds(min(wake.seconds, _LONGEST_SECONDS))
        wakes.put(db, step.n, at.execution, due_at, due)
        entry = suspension.block(db, at.execution, now, reason=SLEEPING, wake_at=due_at)
    tables.append_events(db, at.execution, at.last_seq, [entry], now.wall)
    return True


def _step(db: Connection, execution: int, step_id: str) -> StepRow:
    step = tables.step(db, execution, step_id)
    if step is None:
        raise api_error("not_found", f"not found: step {step_id}", 404)
    return step


def wake_due(db: Connection, now: Moment) -> None:
    """Settle the sleeps whose time is over; an execution that waits for nothing else goes on."""
    for step_n, execution_n in wakes.overdue(db, now.boottime, _MOST_AT_ONCE):
        execution = tables.execution_by_number(db, execution_n)
        step = tables.step_by_number(db, step_n)
        suspension.settle_awaited(db, execution, step, now, result="null")
