"""``Records``: executions, steps and events as rows, for operators and for agents that look."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import api_error
from ..ports import Clock
from ..strict import mended
from . import approvals, executions, fence
from .moment import Moment
from .reading import read_on_time
from .store import Connection, Store, tables, waiting
from .store.rows import ApprovalRow, ExecutionRow, StepRow

__all__ = ["Records"]

T = TypeVar("T")

_LONGEST_KEY_BYTES = 256

Creation = Callable[[Connection], ExecutionRow]


class Records:
    """What operators may ask. ``owner``: an agent that asks, who sees its own executions only."""

    def __init__(
        self,
        store: Callable[[], Store],
        clock: Clock,
        *,
        max_attempts: int,
        deadline: float | None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._max_attempts = max_attempts
        self._deadline = deadline

    def _read(self, work: Callable[[Connection], T]) -> T:
        return read_on_time(self._store(), self._clock, work)

    # -- executions

    def creation(self, agent_id: str, input_json: str, key: str | None, now: Moment) -> Creation:
        """Creates the execution, or finds the one that has the key, in a transaction."""
        if key is not None:
            _check_key(key)
        execution_id, dispatch_id = str(self._clock.new_id()), str(self._clock.new_id())
        return lambda db: executions.create(
            db,
            agent_id=agent_id,
            input_json=input_json,
            key=key,
            execution_id=execution_id,
            dispatch_id=dispatch_id,
            max_attempts=self._max_attempts,
            deadline_seconds=self._deadline,
            now=now,
        )

    def create(self, agent_id: str, input_json: str, key: str | None) -> ExecutionRow:
        create = self.creation(agent_id, input_json, key, Moment.of(self._clock))
        store = self._store()
        row = store.write(create, durable=True)
        store.work_queued()
        return row

    def get(self, execution_id: str, owner: str = "") -> ExecutionRow:
        return self._read(lambda db: _owned(db, execution_id, owner))

    def find(self, agent_id: str, key: str) -> ExecutionRow | None:
        return self._read(lambda db: executions.find(db, agent_id, key))

    def page(
        self, agent_id: str, status: str, limit: int, cursor: str
    ) -> tuple[list[ExecutionRow], str | None]:
        """Newest first, and the next page's cursor (protocol.md 2.1.2)."""
        limit = min(limit, 200) if limit > 0 else 50
        if cursor:
            cursor = _checked_cursor(cursor)
        rows = self._read(lambda db: tables.executions(db, agent_id, status, cursor, limit + 1))
        more = rows[limit - 1].id if len(rows) > limit else None
        return rows[:limit], more

    def cancel(self, execution_id: str) -> None:
        self._read(lambda db: executions.get(db, execution_id))  # A deadline comes first.
        now = Moment.of(self._clock)
        store = self._store()
        store.write(
            lambda db: executions.cancel(db, execution_id, executions.CLIENT_CANCELLED, now),
            durable=True,
        )
        store.work_queued()
        store.watch.ended(execution_id)

    # -- what happened in them

    def events(self, execution_id: str, after_seq: int, limit: int) -> list[tuple[Any, ...]]:
        """Events with a greater number, oldest first; at most 1000."""
        limit = min(limit, 1000) if limit > 0 else 100
        return self._read(
            lambda db: tables.events(db, executions.get(db, execution_id).n, after_seq, limit)
        )

    def steps(self, execution_id: str, status: str, owner: str = "") -> list[StepRow]:
        """By step id; ``terminal`` leaves out the open ones."""
        return self._read(
            lambda db: tables.steps(
                db, _owned(db, execution_id, owner).n, terminal=status == "terminal"
            )
        )

    def step(self, execution_id: str, step_id: str, owner: str = "") -> StepRow:
        def work(db: Connection) -> StepRow:
            execution = executions.get(db, execution_id)
            row = tables.step(db, execution.n, step_id)
            if row is None:
                raise fence.not_found("step", f"{step_id} of execution {execution_id}")
            _check_owner(execution, owner)
            return tables.whole_step(db, row)

        return self._read(work)

    # -- what waits for a person

    def approvals(self, status: str = "pending") -> list[ApprovalRow]:
        """With that status, the oldest first."""
        return self._read(lambda db: waiting.approvals(db, status))

    def approval(self, approval_id: str) -> ApprovalRow:
        return self._read(lambda db: approvals.find(db, approval_id))

    def decide(self, approval_id: str, decided_by: str, rationale: str, *, granted: bool) -> None:
        self.approval(approval_id)  # What is overdue comes first.
        decided_by, rationale = mended(decided_by), mended(rationale)
        now = Moment.of(self._clock)
        decide = approvals.grant if granted else approvals.deny
        store = self._store()
        store.write(lambda db: decide(db, approval_id, decided_by, rationale, now), durable=True)
        store.work_queued()


def _owned(db: Connection, execution_id: str, owner: str) -> ExecutionRow:
    row = executions.get(db, execution_id)
    _check_owner(row, owner)
    return row


def _check_owner(row: ExecutionRow, owner: str) -> None:
    if owner and row.agent_id != owner:
        raise api_error("forbidden", f"forbidden: {row.id} is not an execution of {owner!r}", 403)


def _checked_cursor(cursor: str) -> str:
    try:
        return str(uuid.UUID(cursor))
    except ValueError:
        raise api_error(
            "validation_error",
            f"validation error: cursor must be the id of an execution, not {cursor!r}",
            400,
        ) from None


def _check_key(key: str) -> None:
    try:
        length = len(key.encode())
    except UnicodeEncodeError:  # A lone surrogate.
        length = 0
    if not key.strip() or "\0" in key or not 0 < length <= _LONGEST_KEY_BYTES:
        raise api_error(
            "validation_error",
            "validation error: idempotency_key must have 1 to 256 bytes of UTF-8, not all"
            " blank and without NUL",
            400,
        )
