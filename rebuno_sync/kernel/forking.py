"""``Forking``: making forks, and saying where they can be made (protocol.md 9.5)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ..errors import api_error
from ..ports import Clock
from ..types import ExecutionStatus
from . import executions, forks
from .executions import Terms
from .forks import Fork, Points
from .moment import Moment
from .policies import check_bundle
from .reading import read_on_time
from .store import Connection, Store, forking, tables
from .store.rows import ExecutionRow, RemovedRow

__all__ = ["Forking", "Retry"]

Retry = Callable[[Connection], ExecutionRow]


class Forking:
    """What operators may ask about forks, and a host that retries."""

    def __init__(self, store: Callable[[], Store], clock: Clock, terms: Terms) -> None:
        self._store = store
        self._clock = clock
        self._terms = terms

    def fork(self, execution_id: str, fork: Fork) -> tuple[ExecutionRow, dict[str, Any] | None]:
        """The fork, which is due at once or when its session admits it; and what its resources are
        restored from."""
        store = self._store()
        read_on_time(store, self._clock, lambda db: None)
        now = Moment.of(self._clock)
        new_id = str(self._clock.new_id())

        def work(db: Connection) -> tuple[ExecutionRow, dict[str, Any] | None]:
            source = executions.kept(db, execution_id)
            forks.check(db, source, fork)
            check_bundle(fork.policy_bundle)
            row = self._create(db, source, fork, new_id, now)
            return row, json.loads(forking.told_of_fork(db, row.n)).get("restoration")

        made = store.write(work, durable=True)
        store.work_queued()
        return made

    def retry(self, agent_id: str, key: str, failed_id: str, now: Moment) -> Retry:
        """Forks the failed execution that has the key, in a transaction; whoever comes second
        finds the fork of the first."""
        new_id = str(self._clock.new_id())

        def work(db: Connection) -> ExecutionRow:
            current = executions.find(db, agent_id, key)
            if current is None:
                raise api_error("not_found", f"not found: an execution with the key {key!r}", 404)
            if current.id != failed_id or current.status is not ExecutionStatus.FAILED:
                return current
            if isinstance(current, RemovedRow):
                raise api_error(
                    "conflict",
                    f"conflict: execution {failed_id} with the key {key!r} failed"
                    f" ({current.failure_reason}) and was removed some time after, with what it had"
                    " done, so it cannot be retried; use another key",
                    409,
                )
            return self._create(db, current, forks.retrying(db, current), new_id, now)

        return work

    def points(self, execution_id: str) -> Points:
        """Where the execution can be forked."""
        return read_on_time(
            self._store(),
            self._clock,
            lambda db: forks.points(db, executions.kept(db, execution_id)),
        )

    def _create(
        self, db: Connection, source: ExecutionRow, fork: Fork, new_id: str, now: Moment
    ) -> ExecutionRow:
        if tables.agent_lease_seconds(db, source.agent_id) is None:
            message = f"not found: agent {source.agent_id!r} is not registered"
            raise api_error("not_found", message, 404)
        return forks.create(
            db,
            source,
            fork,
            self._terms,
            execution_id=new_id,
            now=now,
        )
