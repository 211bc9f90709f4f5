"""``Kernel``: an operator's view of one SQLite file."""

from __future__ import annotations

import builtins
import os
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from ..clock import SYSTEM
from ..codec import PLAIN
from ..errors import ExecutionCancelled, ExecutionFailed, StorageError, api_error
from ..ports import Clock
from ..types import Event, Execution, ExecutionPage, ExecutionStatus, LeaseKey, Step
from . import dispatches, executions
from .agent_port import AgentPort
from .dispatches import Claim, Claimer
from .moment import Moment
from .reading import read_on_time
from .store import Connection, Store, registry, tables
from .store.rows import AgentRow, ExecutionRow
from .views import event_view, execution_view, step_view

__all__ = ["DEFAULT_PATH", "Kernel", "ended"]

T = TypeVar("T")

DEFAULT_PATH = ".rebuno/kernel.db"
_SMALLEST_LEASE_OF_AN_AGENT = 10.0
_LONGEST_KEY_BYTES = 256
_POLL_CAP_SECONDS = 1.0


class Kernel:
    """An embedded kernel on one SQLite file, shared by the threads and processes of one machine.

    ``path``: the file, made when missing (default: ``REBUNO_DB``, else ``.rebuno/kernel.db``).
    Several ``Kernel`` objects may name one file. ``lease_timeout``: seconds after which an attempt
    that sent no heartbeat is taken for dead (its process's death is noticed at once).
    ``max_attempts``: attempts in a row that may die without settling a step (protocol.md 4).
    ``deadline``: seconds from its creation after which an execution is cancelled; none by default.

    Raises ``StorageError`` when the file cannot be used; it is then left as it was.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        lease_timeout: float = 120.0,
        max_attempts: int = 5,
        deadline: float | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        for name, value in (("lease_timeout", lease_timeout), ("max_attempts", max_attempts)):
            if value <= 0:
                raise ValueError(f"{name} must be positive, not {value}")
        if deadline is not None and deadline <= 0:
            raise ValueError(f"deadline must be positive, not {deadline}")
        self.path = Path(path or os.environ.get("REBUNO_DB") or DEFAULT_PATH).absolute()
        self._lease_timeout = lease_timeout
        self._max_attempts = max_attempts
        self._deadline = deadline
        self._clock = clock
        self._opening = threading.Lock()
        self._opened: Store | None = None
        self._closed = False
        self.agent = AgentPort(self._store, clock)
        self._store()

    def _store(self) -> Store:
        """The open file; after a fork the child opens its own."""
        store = self._opened
        if store is not None and not store.abandoned:
            return store
        if store is not None:
            if store.forked_open:
                raise StorageError(
                    f"{self.path} was open when this process was forked by something that bypasses"
                    " Python's fork hooks; open the kernel after the fork instead."
                )
            self._opening = threading.Lock()  # The parent's may have been held at the fork.
            self._opened = None
        with self._opening:
            if self._closed:
                raise ValueError(f"this Kernel({str(self.path)!r}) is closed")
            if self._opened is None:
                self._opened = Store.open(self.path, self._clock)
            return self._opened

    def close(self) -> None:
        """Close the file; a lease that is still held runs out. Idempotent."""
        with self._opening:
            self._closed = True
            store, self._opened = self._opened, None
        if store is not None and not store.abandoned:
            store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        return self._store().write(work, durable=durable)

    def _read(self, work: Callable[[Connection], T]) -> T:
        return read_on_time(self._store(), self._clock, work)

    # -- agents

    def register_agent(self, agent_id: str, *, lease_timeout_seconds: float = 0) -> None:
        """Make an agent known; its executions are run by processes that host its handler.

        A ``lease_timeout_seconds`` below 10 stands for the kernel's default (protocol.md 2.3).
        """
        if not agent_id:
            raise ValueError("agent_id must not be empty")
        kept = lease_timeout_seconds >= _SMALLEST_LEASE_OF_AN_AGENT
        seconds = lease_timeout_seconds if kept else 0.0
        now = self._clock.wall()
        self._write(
            lambda db: registry.put_agent(db, AgentRow(agent_id, "", "", 0, seconds, None, now))
        )

    def knows_agent(self, agent_id: str) -> bool:
        """Whether an agent of that name is registered."""
        return self._read(lambda db: tables.agent_lease_seconds(db, agent_id)) is not None

    # -- the operator's methods

    def create(
        self, agent_id: str, input: object = None, *, idempotency_key: str | None = None
    ) -> Execution:
        """Create an execution of a registered agent, or find the one that has the key already.

        ``input``: any JSON value. ``idempotency_key``: 1 to 256 bytes, unique for the agent; on a
        hit the other arguments are ignored (protocol.md 9.1). Raises ``NotFoundError`` for an
        unknown agent, ``ValidationError`` for a bad key, ``TypeError`` for an input that is not
        JSON.
        """
        now = Moment.of(self._clock)
        return execution_view(self._write(self._creation(agent_id, input, idempotency_key, now)))

    def _creation(
        self, agent_id: str, input: object, key: str | None, now: Moment
    ) -> Callable[[Connection], ExecutionRow]:
        input_json = PLAIN.encode(input, "input")
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

    def get(self, execution_id: str) -> Execution:
        """One execution; ``NotFoundError`` when there is none."""
        return execution_view(self._read(lambda db: executions.get(db, execution_id)))

    def find(self, agent_id: str, idempotency_key: str) -> Execution | None:
        """The agent's execution with that key, if there is one."""
        row = self._read(lambda db: tables.execution_by_key(db, agent_id, idempotency_key))
        return None if row is None else execution_view(row)

    def list(
        self, *, agent_id: str = "", status: str = "", limit: int = 50, cursor: str = ""
    ) -> ExecutionPage:
        """One page of executions, newest first (protocol.md 2.1.2).

        ``limit``: at most 200. ``cursor``: the ``next_cursor`` of the page before.
        """
        limit = min(limit, 200) if limit > 0 else 50
        if cursor:
            cursor = _checked_cursor(cursor)
        rows = self._read(lambda db: tables.executions(db, agent_id, status, cursor, limit + 1))
        more = rows[limit - 1].id if len(rows) > limit else None
        return ExecutionPage(
            executions=[execution_view(row) for row in rows[:limit]], next_cursor=more
        )

    def events(
        self, execution_id: str, after_seq: int = 0, limit: int = 100
    ) -> builtins.list[Event]:
        """Events with a greater number than ``after_seq``, oldest first; at most 1000."""
        limit = min(limit, 1000) if limit > 0 else 100

        def work(db: Connection) -> builtins.list[Event]:
            n = executions.get(db, execution_id).n
            rows = tables.events(db, n, after_seq, limit)
            return [event_view(execution_id, row) for row in rows]

        return self._read(work)

    def list_steps(self, execution_id: str, status: str = "") -> builtins.list[Step]:
        """The recorded steps by step id; ``status="terminal"`` leaves out the open ones."""

        def work(db: Connection) -> builtins.list[Step]:
            n = executions.get(db, execution_id).n
            rows = tables.steps(db, n, terminal=status == "terminal")
            return [step_view(execution_id, row) for row in rows]

        return self._read(work)

    def get_step(self, execution_id: str, step_id: str) -> Step:
        """One step; ``NotFoundError`` when the execution has none with that id."""

        def work(db: Connection) -> Step:
            row = tables.step(db, executions.get(db, execution_id).n, step_id)
            if row is None:
                raise api_error("not_found", f"not found: step {step_id}", 404)
            return step_view(execution_id, row)

        return self._read(work)

    def cancel(self, execution_id: str) -> None:
        """End an execution; ``ConflictError`` when it has ended already (protocol.md 9.4)."""
        self._read(lambda db: executions.get(db, execution_id))  # A deadline comes first.
        now = Moment.of(self._clock)
        self._write(
            lambda db: executions.cancel(db, execution_id, executions.CLIENT_CANCELLED, now)
        )

    def wait(self, execution_id: str, timeout: float | None = None) -> Execution:
        """Wait until the execution has completed and return it.

        ``timeout``: seconds, after which ``TimeoutError`` is raised and the execution goes on.
        Raises ``ExecutionFailed`` or ``ExecutionCancelled`` when it ended in that way.
        """
        started = self._clock.monotonic()
        while True:
            seen = self.change_mark()
            execution = self.get(execution_id)
            if execution.status.terminal:
                return ended(execution)
            waited = self._clock.monotonic() - started
            if timeout is not None and waited >= timeout:
                raise TimeoutError(
                    f"execution {execution_id} is still {execution.status} after {timeout} s"
                )
            left = _POLL_CAP_SECONDS if timeout is None else timeout - waited
            self.wait_for_change(seen, left)

    # -- for hosts of a handler

    def start(
        self,
        agent_id: str,
        input: object = None,
        *,
        idempotency_key: str | None = None,
        holder: threading.Thread | None = None,
    ) -> tuple[Execution, Claim | None]:
        """``create`` and ``claim`` in one commit, for a host of the agent; registers the agent."""
        now = Moment.of(self._clock)
        create = self._creation(agent_id, input, idempotency_key, now)

        def work(db: Connection) -> tuple[ExecutionRow, Claim | None]:
            if tables.agent_lease_seconds(db, agent_id) is None:
                registry.put_agent(db, AgentRow(agent_id, "", "", 0, 0, None, now.wall))
            row = create(db)
            return row, claim(row.id, db)

        claim = self._claiming(now, holder)
        row, claimed = claim.committed(work)
        return execution_view(row), claimed

    def claim(self, execution_id: str, *, holder: threading.Thread | None = None) -> Claim | None:
        """Take the lease of an execution, if it is free and due (protocol.md 5.2).

        The lease of a process that has died is free at once. Whoever claims must run the handler.
        ``holder``: the thread that will; when it ends, or claims the same execution again, without
        having given the lease back, the lease is free as well.
        """
        claim = self._claiming(Moment.of(self._clock), holder)
        return claim.committed(lambda db: claim(execution_id, db))

    def _claiming(self, now: Moment, holder: threading.Thread | None) -> _Claiming:
        return _Claiming(self._store(), holder, self._lease_timeout, now)

    def monotonic(self) -> float:
        """The clock on which this kernel measures leases."""
        return self._clock.monotonic()

    def change_mark(self) -> int:
        """Where the file's changes stand: take it before you look, then ``wait_for_change``."""
        return self._store().database.generation

    def wait_for_change(self, mark: int, timeout: float) -> None:
        """Wait until something was written since ``mark``, by any process; or ``timeout`` seconds.

        May return early. Timers that come due are no change, so it never waits longer than a
        second.
        """
        self._store().database.wait_for_change(mark, min(timeout, _POLL_CAP_SECONDS))


class _Claiming:
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

    def __call__(self, execution_id: str, db: Connection) -> Claim | None:
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


def ended(execution: Execution) -> Execution:
    """A terminal execution: itself when completed, else its error is raised."""
    reason = execution.failure_reason
    where = f"execution {execution.id} of {execution.agent_id}"
    if execution.status is ExecutionStatus.FAILED:
        raise ExecutionFailed(f"{where} failed: {reason}", execution.id, reason)
    if execution.status is ExecutionStatus.CANCELLED:
        raise ExecutionCancelled(f"{where} was cancelled: {reason}", execution.id, reason)
    return execution
