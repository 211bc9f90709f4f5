"""What an execution of this process asks of the kernel about resources (protocol.md 9.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ..ports import Clock
from ..types import Capture, CaptureFailure, LeaseKey, Registration, ResourceView
from . import fence, resources
from .moment import Moment
from .resources import Captures
from .store import Connection, Store

__all__ = ["ResourcePort"]

T = TypeVar("T")


class ResourcePort:
    """A ``ports.ResourceKernel`` on the kernel's file."""

    def __init__(self, store: Callable[[], Store], clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def register(self, lease: LeaseKey, wanted: Registration) -> ResourceView:
        resources.check_registration(wanted)

        def work(db: Connection, execution: int, now: Moment) -> ResourceView:
            row = resources.register(db, execution, wanted, now)
            return resources.view(db, execution, row)

        return self._under(lease, work)

    def bind(self, lease: LeaseKey, key: str, binding: str) -> None:
        resources.check_binding(binding)
        self._under(lease, lambda db, n, now: resources.bind(db, n, key, binding, now))

    def keep(
        self, lease: LeaseKey, captures: Sequence[Capture], failures: Sequence[CaptureFailure]
    ) -> None:
        told = Captures(captures, failures)
        self._under(lease, lambda db, n, now: resources.checkpoint(db, n, told, now))

    def _under(self, lease: LeaseKey, work: Callable[[Connection, int, Moment], T]) -> T:
        now = Moment.of(self._clock)

        def fenced(db: Connection) -> T:
            at = fence.standing(db, lease, now)
            if at.status.terminal:
                raise fence.terminal_error(lease.execution_id)
            fence.pass_renew_fence(db, at, lease, now)
            return work(db, at.execution, now)

        return self._store().write(fenced, durable=True)
