"""Reads that see what time has done: whatever is past its deadline is ended first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..ports import Clock
from . import executions
from .moment import Moment
from .store import Connection, Store, tables

__all__ = ["read_on_time"]

T = TypeVar("T")


def read_on_time(store: Store, clock: Clock, work: Callable[[Connection], T]) -> T:
    """Read after whatever is due has happened."""
    now = Moment.of(clock)
    if store.read(lambda db: tables.past_deadline(db, now.boottime)):
        store.write(lambda db: _expire(db, now), durable=True)
    return store.read(work)


def _expire(db: Connection, now: Moment) -> None:
    for execution_id in tables.past_deadline(db, now.boottime):
        executions.expire(db, execution_id, now)
