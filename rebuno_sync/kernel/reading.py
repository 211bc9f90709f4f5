"""Reads that see what time has done: deadlines, approvals and sleeps that are over come first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..ports import Clock
from . import approvals, executions, parking
from .moment import Moment
from .store import Connection, Store, queue, tables, waiting, wakes

__all__ = ["next_due", "read_on_time"]

T = TypeVar("T")


def read_on_time(store: Store, clock: Clock, work: Callable[[Connection], T]) -> T:
    """Read after whatever is due has happened."""
    now = Moment.of(clock)
    if store.read(lambda db: _is_overdue(db, now)):
        store.write(lambda db: _expire(db, now), durable=True)
        store.work_queued()
    return store.read(work)


def next_due(db: Connection) -> float | None:
    """When the next timer is over, on the boot-time clock: a deadline, the timeout of an approval,
    a sleep."""
    timers = (queue.next_deadline(db), waiting.next_timeout(db), wakes.next_due(db))
    return min((due for due in timers if due is not None), default=None)


def _is_overdue(db: Connection, now: Moment) -> bool:
    due = next_due(db)
    return due is not None and due <= now.boottime


def _expire(db: Connection, now: Moment) -> None:
    for execution_id in tables.past_deadline(db, now.boottime):
        executions.expire(db, execution_id, now)
    approvals.expire_overdue(db, now)
    parking.wake_due(db, now)
