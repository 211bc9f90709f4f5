"""``Records``: executions, steps and events as rows, for operators and for agents that look."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..errors import api_error
from ..ports import Clock
from ..strict import mended
from . import approvals, executions, fence, sessions
from .executions import Terms, Wanted
from .moment import Moment
from .reading import read_on_time
from .store import Connection, Store, tables, waiting
from .store.rows import ApprovalRow, ExecutionRow, StepRow
from .subagents import Spawner

__all__ = ["Records", "spawner_in"]

T = TypeVar("T")

_LARGEST_PAGE_CHARACTERS = 16 * 2**20
"""Of inputs and outputs, but for the last one's: an answer is put together in memory."""

Creation = Callable[[Connection], ExecutionRow]


class Records:
    """What operators may ask. ``owner``: an agent that asks, who sees its own executions only."""

    def __init__(self, store: Callable[[], Store], clock: Clock, terms: Terms) -> None:
        self._store = store
        self._clock = clock
        self._terms = terms

    def _read(self, work: Callable[[Connection], T]) -> T:
        return read_on_time(self._store(), self._clock, work)

    # -- executions

    def creation(self, wanted: Wanted, now: Moment) -> Creation:
        """Creates the execution, or finds the one that has the key, in a transaction."""
        if wanted.session is not None:
            sessions.check_name("session", wanted.session)
        if wanted.key is not None:
            sessions.check_name("idempotency_key", wanted.key)
        elif wanted.spawner is not None:
            wanted = wanted._replace(key=wanted.spawner[1])
        execution_id, dispatch_id = str(self._clock.new_id()), str(self._clock.new_id())
        return lambda db: executions.create(
            db,
            wanted,
            self._terms,
            execution_id=execution_id,
            dispatch_id=dispatch_id,
            now=now,
        )

    def create(self, wanted: Wanted) -> ExecutionRow:
        if wanted.spawner or wanted.parent or wanted.session:
            self._read(lambda _: None)  # Those that it depends on may be past their deadlines.
        create = self.creation(wanted, Moment.of(self._clock))
        store = self._store()
        row = store.write(create, durable=True)
        store.work_queued()
        return row

    def get(self, execution_id: str, owner: str = "") -> ExecutionRow:
        return self._read(lambda db: _owned(db, execution_id, owner))

    def left_behind(self, execution_id: str, owner: str = "") -> str:
        """What the execution before that one left, as JSON (protocol.md 9.3)."""
        return self._read(lambda db: executions.left_behind(db, _owned(db, execution_id, owner)))

    def find(self, agent_id: str, key: str) -> ExecutionRow | None:
        return self._read(lambda db: executions.find(db, agent_id, key))

    def page(
        self, agent_id: str, status: str, limit: int, cursor: str, session: str = ""
    ) -> tuple[list[ExecutionRow], str | None]:
        """Newest first, and the next page's cursor (protocol.md 2.1.2). A page of long inputs and
        outputs has fewer than ``limit``."""
        limit = min(limit, 200) if limit > 0 else 50
        if cursor:
            cursor = _checked_cursor(cursor)

        def work(db: Connection) -> tuple[list[ExecutionRow], str | None]:
            rows: list[ExecutionRow] = []
            characters = 0
            for row in tables.executions(db, agent_id, status, cursor, limit + 1, session):
                if len(rows) == limit or characters > _LARGEST_PAGE_CHARACTERS:
                    return rows, rows[-1].id
                rows.append(row)
                characters += len(row.input) + len(row.output or "")
            return rows, None

        return self._read(work)

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
        return self._read(
            lambda db: [waiting.whole_approval(db, row) for row in waiting.approvals(db, status)]
        )

    def approval(self, approval_id: str) -> ApprovalRow:
        return self._read(lambda db: waiting.whole_approval(db, approvals.find(db, approval_id)))

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


def spawner_in(spawned_by: Mapping[str, object] | None) -> Spawner | None:
    """The execution and the step that ``spawned_by`` names (protocol.md 2.1.1)."""
    if not spawned_by:
        return None
    named = [spawned_by.get(name) for name in ("execution_id", "step_id")]
    execution_id, step_id = (name if isinstance(name, str) else "" for name in named)
    if len(spawned_by) != len(named) or not execution_id or not step_id:
        raise api_error(
            "validation_error",
            "validation error: spawned_by is an execution_id and a step_id, two texts",
            400,
        )
    return execution_id, step_id
