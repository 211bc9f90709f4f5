"""Reads that see what time has done: deadlines and approvals that are over come first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..ports import Clock
from . import approvals, executions
from .moment import Moment
from .store import Connection, Store, tables, waiting

__all__ = ["read_on_time"]

T = TypeVar("T")


def read_on_time(store: Store, clock: Clock, work: Callable[[Connection], T]) -> T:
    """Read after whatever is due has happened."""
    now = Moment.of(clock)
    if store.read(lambda db: _is_overdue(db, now)):
        store.write(lambda db: _expire(db, now), durable=True)
        store.work_queued()
    return store.read(work)


def _is_overdue(db: Connection, now: Moment) -> bool:
    due = waiting.next_timeout(db)
    return bool(tables.past_deadline(db, now.boottime)) or (due is not None and due <= now.boottime)


def _expire(db: Connection, now: Moment) -> None:
    for execution_id in tables.past_deadline(db, now.boottime):
        executions.expire(db, execution_id, now)
    approvals.expire_overdue(db, now)
