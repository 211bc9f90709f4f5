"""Claims within a transaction, for handlers of this process and for agents elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from ..types import LeaseKey
from . import dispatches
from .dispatches import Claim, Claimer
from .moment import Moment
from .store import Connection, Store

__all__ = ["Claiming"]

T = TypeVar("T")


class Claiming:
    """Claims within a transaction, so that they are known as ours before anybody can see them.

    Another thread of this process would take a lease that it does not know for one nobody runs.
    """

    def __init__(
        self, store: Store, holder: threading.Thread | None, lease_seconds: float, now: Moment
    ) -> None:
        self._store = store
        self._claimer = Claimer(store.owner, holder)
        self._lease_seconds = lease_seconds
        self._now = now
        self._begun: set[LeaseKey] = set()

    def __call__(self, execution_id: str, db: Connection, *, remote: bool = False) -> Claim | None:
        if remote:
            return dispatches.take(
                db, execution_id, self._claimer, self._lease_seconds, self._now, remote=True
            )
        claim = dispatches.claim(db, execution_id, self._claimer, self._lease_seconds, self._now)
        if claim is not None:
            self._store.attempts.start(
                claim.lease, claim.recorded, self._claimer.thread, claim.deadline_due
            )
            self._begun.add(claim.lease)
        return claim

    def committed(self, work: Callable[[Connection], T]) -> T:
        """Run ``work``, which calls this; when it fails or is interrupted, nothing is ours."""
        try:
            return self._store.write(work, durable=True)
        except BaseException:
            for lease in self._begun:
                self._store.attempts.end(lease)
            raise
