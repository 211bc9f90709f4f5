"""``Deltas``: pieces of what running steps receive, on their way to whoever listens (protocol.md
8.4).

Nothing of it is recorded. Listeners of this process get a piece from memory. Where another process
of the file has a listener, the piece also goes into a ring of a few hundred rows, which that
process looks at while it has one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ..errors import APIError, StorageError, api_error
from ..ports import Clock
from ..types import Delta, LeaseKey, StepStatus
from . import executions, fence, steps, unfenced
from .crew import Crew
from .moment import Moment
from .operations import Asked, check_owner
from .operations import standing as standing_elsewhere
from .reading import read_on_time
from .store import Connection, Store, ring
from .store.rows import Standing
from .subscription import Subscription

__all__ = ["Deltas", "check_length"]

_log = logging.getLogger(__name__)

MOST_STREAMS = 256

_LONGEST_DELTA_BYTES = 7000

_LOOK_EVERY_SECONDS = 0.05
"""How late a piece from another process may come."""

_REGISTERED_SECONDS = 60.0
"""A listener whose process has died counts for so long."""

_STOP_SECONDS = 1.0


def check_length(delta: Delta) -> None:
    """Raise ``validation_error`` for a piece that is too long."""
    if len(delta.data.encode("utf-8", "surrogatepass")) > _LONGEST_DELTA_BYTES:
        message = f"validation error: data has more than {_LONGEST_DELTA_BYTES} bytes"
        raise api_error("validation_error", message, 400)


class Deltas:
    """Listening and publishing, for one kernel."""

    def __init__(self, store: Callable[[], Store], clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._name = str(clock.new_id())
        self._guard = threading.Lock()
        self._listeners: dict[str, list[Subscription]] = {}
        self._crew = Crew("rebuno-deltas")
        self._watched: Store | None = None
        self._stop = threading.Event()
        self.most_streams = MOST_STREAMS

    @property
    def streams(self) -> int:
        """How many listen."""
        with self._guard:
            return sum(map(len, self._listeners.values()))

    # -- listening

    def listen(self, execution_id: str) -> Subscription:
        """Listen to an execution from now on. 503 when too many do."""
        store = self._store()
        read_on_time(store, self._clock, lambda db: executions.get(db, execution_id))
        subscription = Subscription(execution_id, self._leave)
        with self._guard:
            if self._watched is not store:
                self._listeners = {}  # Those of before a fork are the parent's.
            self._forget_ended()
            if sum(map(len, self._listeners.values())) >= self.most_streams:
                raise api_error(
                    "internal_error",
                    f"this kernel has {self.most_streams} event streams open, the most it serves;"
                    " close one, or ask again later",
                    503,
                )
            self._listeners.setdefault(execution_id, []).append(subscription)
        try:
            self._register(store, execution_id)
            self._watch(store)
        except BaseException:
            self._leave(subscription)
            raise
        return subscription

    def _forget_ended(self) -> None:
        """Listeners that were dropped without being closed."""
        for execution_id, there in list(self._listeners.items()):
            self._listeners[execution_id] = [one for one in there if not one.ended]
            if not self._listeners[execution_id]:
                del self._listeners[execution_id]

    def _register(self, store: Store, execution_id: str) -> None:
        until = self._clock.boottime() + _REGISTERED_SECONDS
        store.write(
            lambda db: ring.put_listener(db, self._name, execution_id, until), durable=False
        )

    def _leave(self, subscription: Subscription) -> None:
        execution_id = subscription.execution_id
        with self._guard:
            there = self._listeners.get(execution_id, [])
            if subscription in there:
                there.remove(subscription)
            if not there:
                self._listeners.pop(execution_id, None)
                # The row runs out by itself: a listener that comes back soon finds it.

    def close(self) -> None:
        """End every stream."""
        self._stop.set()
        with self._guard:
            left = [one for many in self._listeners.values() for one in many]
            self._listeners = {}
        for subscription in left:
            subscription.end()
        self._crew.close(_STOP_SECONDS)

    # -- publishing

    def publish(self, lease: LeaseKey, delta: Delta) -> None:
        """A piece from a handler of this process, under its lease."""
        check_length(delta)
        self._publish(lease, delta, lambda db, now: fence.standing(db, lease, now))

    def publish_from_elsewhere(self, asked: Asked, delta: Delta) -> None:
        """A piece from an agent elsewhere. Those of the first two generations name no lease."""
        if asked.lease.attempt == unfenced.UNNAMED:
            lease = self._store().read(lambda db: unfenced.newest(db, asked.lease))
            self._publish(lease, delta, lambda db, now: fence.standing(db, lease, now), asked)
        else:
            self._publish(
                asked.lease, delta, lambda db, now: standing_elsewhere(db, asked, now), asked
            )

    def _publish(
        self,
        lease: LeaseKey,
        delta: Delta,
        stand: Callable[[Connection, Moment], Standing],
        asked: Asked | None = None,
    ) -> None:
        store, now = self._store(), Moment.of(self._clock)
        execution_id = lease.execution_id

        def work(db: Connection) -> bool:
            at = stand(db, now)
            row = steps.step_of(db, at, execution_id, delta.step_id)
            if asked is not None:
                check_owner(at, asked)
            fence.pass_check_fence(at, lease)
            if row.status is not StepStatus.EXECUTING:
                raise api_error("conflict", f"conflict: step {row.step_id} is {row.status}", 409)
            return ring.has_listener(db, execution_id, self._name, now.boottime)

        # What is past its deadline has been ended, so that standing writes nothing.
        elsewhere = read_on_time(store, self._clock, work)
        self._hand_out(execution_id, delta)
        if elsewhere:
            store.write(lambda db: ring.put(db, self._name, execution_id, delta), durable=False)

    def _hand_out(self, execution_id: str, delta: Delta) -> None:
        with self._guard:
            there = list(self._listeners.get(execution_id, ()))
        for subscription in there:
            subscription.put(delta)

    # -- the thread that looks at the ring

    def _watch(self, store: Store) -> None:
        with self._guard:
            if self._watched is store:
                return
            if self._watched is not None:
                self._crew = Crew("rebuno-deltas")  # The parent's, before a fork.
            self._watched = store
        seen = store.read(ring.last)
        self._crew.hand(lambda: self._loop(store, seen))

    def _loop(self, store: Store, seen: int) -> None:
        renew_at = self._clock.monotonic() + _REGISTERED_SECONDS / 3
        while not self._stop.wait(_LOOK_EVERY_SECONDS):
            with self._guard:
                names = list(self._listeners)
                if not names:
                    self._watched = None
                    return
            try:
                seen = self._look(store, seen)
                if self._clock.monotonic() >= renew_at:
                    for execution_id in names:
                        self._register(store, execution_id)
                    renew_at = self._clock.monotonic() + _REGISTERED_SECONDS / 3
            except (APIError, StorageError) as error:
                if store.database.closed:
                    return
                _log.warning("deltas of other processes cannot be read for now: %s", error)

    def _look(self, store: Store, seen: int) -> int:
        found = store.read(lambda db: ring.since(db, seen, self._name))
        for _, execution_id, delta in found:
            self._hand_out(execution_id, delta)
        return found[-1][0] if found else seen
