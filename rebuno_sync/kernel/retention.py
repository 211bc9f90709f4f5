"""``Retention``: executions go some time after their end, and their keys never run again
(protocol.md 9.8).

Only what has ended is removed, and its age counts from its end. Of an execution that had a key a
tombstone stays, so that asking for the key again finds the old outcome. Buckets of rate limits that
nothing asked for as long go too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ..canonical import canonicalize
from ..errors import StorageError, api_error
from ..ports import Clock
from ..types import ExecutionStatus
from . import identity
from .store import Connection, Store, counters, graves, tables
from .store.graves import Tombstone
from .store.rows import ExecutionRow, RemovedRow

__all__ = ["Retention", "removed_by_id", "removed_by_key"]

_log = logging.getLogger(__name__)

_BATCH = 20
"""Removed in one transaction: others wait for it."""

_LONGEST_PAUSE_SECONDS = 60.0
"""Between looks that found little."""

_LARGEST_KEPT_BYTES = 1024


class Retention:
    """Removes what has ended ``seconds`` ago; nothing when that is ``None``."""

    def __init__(self, store: Callable[[], Store], clock: Clock, seconds: float | None) -> None:
        self._store = store
        self._clock = clock
        self._seconds = seconds
        self._next = float("-inf")

    def sweep_if_due(self) -> None:
        """``sweep``, unless one has found little a moment ago. For those who pass by."""
        now = self._clock.monotonic()
        if self._seconds is None or now < self._next:
            return
        self._next = now + min(_LONGEST_PAUSE_SECONDS, self._seconds / 2)
        try:
            if self.sweep() == _BATCH:
                self._next = now
        except StorageError as error:
            _log.warning("old executions are not removed for now: %s", error)

    def sweep(self) -> int:
        """Remove one batch of old executions; how many there were."""
        if self._seconds is None:
            return 0
        store = self._store()
        before = self._clock.wall() - round(self._seconds * 1_000_000)
        if not store.read(
            lambda db: graves.ended_before(db, before, 1) or counters.has_idle_buckets(db, before)
        ):
            return 0

        def work(db: Connection) -> int:
            counters.drop_idle_buckets(db, before)
            old = graves.ended_before(db, before, _BATCH)
            for execution_id in old:
                row = tables.execution(db, execution_id)
                assert row is not None
                if row.idempotency_key is not None:
                    graves.bury(db, _tombstone(row, row.idempotency_key))
                graves.remove(db, row.n)
            return len(old)

        return store.write(work, durable=False)


def _tombstone(row: ExecutionRow, key: str) -> Tombstone:
    output_bytes = 0 if row.output is None else len(row.output.encode())
    return Tombstone(
        row.agent_id,
        key,
        row.id,
        identity.args_hash(_canonical(row.input)),
        row.status,
        row.output if output_bytes <= _LARGEST_KEPT_BYTES else None,
        output_bytes,
        row.failure_reason.encode()[:_LARGEST_KEPT_BYTES].decode(errors="ignore"),
        row.created_at,
        row.updated_at,
    )


def _canonical(text: str) -> str:
    try:
        return canonicalize(text)
    except ValueError:  # It was taken as it is, and only ``run`` compares.
        return text


def removed_by_id(db: Connection, execution_id: str) -> RemovedRow | None:
    """A removed execution that had a key, as far as it is known still."""
    found = graves.by_id(db, execution_id)
    return None if found is None else _row(found)


def removed_by_key(db: Connection, agent_id: str, key: str) -> RemovedRow | None:
    """The removed execution that had the key."""
    found = graves.by_key(db, agent_id, key)
    return None if found is None else _row(found)


def _row(found: Tombstone) -> RemovedRow:
    if found.output is None and found.output_bytes:
        raise api_error(
            "conflict",
            f"conflict: execution {found.execution_id} with the key {found.idempotency_key!r}"
            f" {found.status} and was removed some time after; its output of"
            f" {found.output_bytes} bytes was too large to keep ({_LARGEST_KEPT_BYTES} at most)."
            " It does not run again: use another key for that",
            409,
        )
    row = RemovedRow(
        0,
        found.execution_id,
        found.agent_id,
        ExecutionStatus(found.status),
        "null",
        found.output,
        found.failure_reason,
        found.idempotency_key,
        found.created_at,
        found.updated_at,
        *(None,) * 2,
        max_attempts=0,
        session=None,
        parent=None,
        spawner=None,
        spawner_step=None,
        on_behalf_of=None,
    )
    row.input_hash = found.input_hash
    return row
