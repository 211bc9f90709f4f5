"""``Kernel``: an operator's view of one SQLite file."""

from __future__ import annotations

import builtins
import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from ..clock import SYSTEM
from ..closing import Closing
from ..codec import PLAIN
from ..combined import Combined
from ..endings import PAGE, ended, still_open
from ..errors import StorageError
from ..ports import Clock, Deliver
from ..types import Event, Execution, ExecutionPage, LeaseKey, Step
from .access import Access
from .agent_port import AgentPort
from .agents import LONGEST_LEASE_SECONDS
from .branching import Branching
from .claiming import Claiming
from .core import Core
from .dispatcher import Dispatcher, Receive
from .dispatches import Claim
from .executions import Wanted
from .governance import Governance
from .keeping import Keeping
from .listening import Listening
from .moment import Moment
from .reading import next_due, read_on_time
from .records import spawner_in
from .registering import Registering
from .store import Connection, Store, registry, tables, waiting
from .store.rows import AgentRow, ExecutionRow
from .views import event_view, execution_view, step_view

__all__ = ["DEFAULT_PATH", "Kernel"]

_log = logging.getLogger(__name__)

T = TypeVar("T")

DEFAULT_PATH = ".rebuno/kernel.db"
LONGEST_SECONDS = LONGEST_LEASE_SECONDS
_POLL_CAP_SECONDS = 1.0
_SHORTEST_WAIT_SECONDS = 0.001


class Kernel(Registering, Governance, Access, Keeping, Branching, Listening, Combined, Closing):
    """An embedded kernel on one SQLite file, shared by the threads and processes of one machine.

    ``path``: the file, made when missing (default: ``REBUNO_DB``, else ``.rebuno/kernel.db``).
    Several ``Kernel`` objects may name one file. ``lease_timeout``: seconds after which an attempt
    that sent no heartbeat is taken for dead (its process's death is noticed at once).
    ``max_attempts``: attempts in a row that may die without settling a step (protocol.md 4).
    ``deadline``: seconds from its creation after which an execution is cancelled; none by default.
    ``retention``: seconds from its end after which an execution is removed, by default a day;
    ``None`` keeps all. They are removed, some at a time, when an execution is created or run here,
    and while an agent is served. One that had a key leaves its outcome, so that the key never runs
    again.
    All three are at most 1e9 seconds.

    Raises ``StorageError`` when the file cannot be used; it is then left as it was.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        lease_timeout: float = 120.0,
        max_attempts: int = 5,
        deadline: float | None = None,
        retention: float | None = 86400.0,
        clock: Clock = SYSTEM,
    ) -> None:
        if max_attempts <= 0:
            raise ValueError(f"max_attempts must be positive, not {max_attempts}")
        for name, seconds in (
            ("lease_timeout", lease_timeout),
            ("deadline", deadline),
            ("retention", retention),
        ):
            if seconds is not None and not 0 < seconds <= LONGEST_SECONDS:
                none = "keeps all" if name == "retention" else "is no limit"
                raise ValueError(
                    f"{name} must be positive and at most {LONGEST_SECONDS:.0f} seconds, not"
                    f" {seconds}" + ("" if name == "lease_timeout" else f"; None {none}")
                )
        self.path = (
            Path(path or os.environ.get("REBUNO_DB") or DEFAULT_PATH).expanduser().absolute()
        )
        self._clock = clock
        self._opening = threading.Lock()
        self._opened: Store | None = None
        self._closed = False
        self._dispatcher: Dispatcher | None = None
        self.core = Core(
            self._store,
            clock,
            lease_timeout=float(lease_timeout),
            max_attempts=max_attempts,
            deadline=deadline,
            retention=retention,
        )
        self.agent = AgentPort(self._store, clock, self.core.records, self.core.deltas)
        is_new = not self.path.exists()
        self._store()
        if is_new:
            _log.info("%s did not exist: it begins empty", self.path)

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
                raise StorageError(
                    f"this Kernel({str(self.path)!r}) is closed; open another one on the file",
                    final=True,
                )
            if self._opened is None:
                self._opened = Store.open(self.path, self._clock)
            return self._opened

    def close(self) -> None:
        """Close the file; a lease that is still held runs out. Idempotent."""
        self.stop_deliveries()
        self.core.deltas.close()
        with self._opening:
            self._closed = True
            store, self._opened = self._opened, None
        if store is not None and not store.abandoned:
            store.close()

    def _write(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        return self._store().write(work, durable=durable)

    def _read(self, work: Callable[[Connection], T]) -> T:
        return read_on_time(self._store(), self._clock, work)

    # -- the operator's methods

    def create(
        self,
        agent_id: str,
        input: object = None,
        *,
        idempotency_key: str | None = None,
        session: str | None = None,
        parent_execution_id: str | None = None,
        spawned_by: Mapping[str, str] | None = None,
        on_behalf_of: str | None = None,
    ) -> Execution:
        """Create an execution of a registered agent, or find the one that has the key already.

        ``input``: any JSON value. ``idempotency_key``: 1 to 256 bytes, unique for the agent; on a
        hit the other arguments are ignored (protocol.md 9.1). ``session``: its executions run one
        after another (9.2). ``parent_execution_id``: whose state it goes on from (9.3).
        ``spawned_by``: ``execution_id`` and ``step_id`` that it stands for (9.7). ``on_behalf_of``:
        for people to read. Raises ``NotFoundError`` for an unknown agent or execution,
        ``ConflictError`` where the parent or the step does not fit, ``ValidationError`` for a bad
        text, ``TypeError`` for an input that is not JSON.
        """
        wanted = Wanted(
            agent_id,
            PLAIN.encode(input, "input"),
            key=idempotency_key,
            session=session,
            parent=parent_execution_id,
            spawner=spawner_in(spawned_by),
            on_behalf_of=on_behalf_of,
        )
        created = self.core.records.create(wanted)
        self.core.retention.sweep_if_due()
        return execution_view(created)

    def get(self, execution_id: str) -> Execution:
        """One execution; ``NotFoundError`` when there is none."""
        return execution_view(self.core.records.get(execution_id))

    def find(self, agent_id: str, idempotency_key: str) -> Execution | None:
        """The agent's execution with that key, if there is one."""
        row = self.core.records.find(agent_id, idempotency_key)
        return None if row is None else execution_view(row)

    def list(
        self,
        *,
        agent_id: str = "",
        status: str = "",
        limit: int = 50,
        cursor: str = "",
        session: str = "",
    ) -> ExecutionPage:
        """One page of executions, newest first (protocol.md 2.1.2).

        ``limit``: at most 200. ``cursor``: the ``next_cursor`` of the page before.
        """
        rows, more = self.core.records.page(agent_id, status, limit, cursor, session)
        return ExecutionPage(executions=[execution_view(row) for row in rows], next_cursor=more)

    def events(
        self, execution_id: str, after_seq: int = 0, limit: int = 100
    ) -> builtins.list[Event]:
        """Events with a greater number than ``after_seq``, oldest first; at most 1000."""
        rows = self.core.records.events(execution_id, after_seq, limit)
        return [event_view(execution_id, row) for row in rows]

    def list_steps(self, execution_id: str, status: str = "") -> builtins.list[Step]:
        """The recorded steps by step id; ``status="terminal"`` leaves out the open ones."""
        rows = self.core.records.steps(execution_id, status)
        return [step_view(execution_id, row) for row in rows]

    def get_step(self, execution_id: str, step_id: str) -> Step:
        """One step; ``NotFoundError`` when the execution has none with that id."""
        return step_view(execution_id, self.core.records.step(execution_id, step_id))

    def previous(self, execution_id: str) -> object:
        """What the execution before that one left to it (protocol.md 9.3); ``None`` if nothing."""
        return self.agent.previous(execution_id)

    def cancel(self, execution_id: str) -> None:
        """End an execution; ``ConflictError`` when it has ended already (protocol.md 9.4)."""
        self.core.records.cancel(execution_id)

    def wait(self, execution_id: str, timeout: float | None = None) -> Execution:
        """Wait until the execution has completed and return it.

        ``timeout``: seconds, after which ``TimeoutError`` is raised and the execution goes on; it
        says so where no agent could be given the execution. Raises ``ExecutionFailed`` or
        ``ExecutionCancelled`` when it ended in that way.
        """
        started = self._clock.monotonic()
        while True:
            seen = self.change_mark()
            execution = self.get(execution_id)
            if execution.status.terminal:
                return ended(execution)
            waited = self._clock.monotonic() - started
            if timeout is not None and waited >= timeout:
                raise still_open(
                    execution, timeout, lambda seen: self.events(execution_id, seen, PAGE)
                )
            left = _POLL_CAP_SECONDS if timeout is None else timeout - waited
            self.wait_for_change(seen, left)

    # -- deliveries

    def dispatcher(self) -> Dispatcher:
        """What delivers from this process; it does nothing before it is told to."""
        store = self._store()
        with self._opening:
            if self._dispatcher is None or self._dispatcher.store is not store:
                self._dispatcher = Dispatcher(self.core, store)
            return self._dispatcher

    def deliver_webhooks(self, deliver: Deliver) -> None:
        """Deliver to all agents with a webhook from now on, in threads of this process."""
        dispatcher = self.dispatcher()
        dispatcher.deliver_webhooks(deliver)
        dispatcher.start()

    def host(self, agent_id: str, receive: Receive) -> None:
        """Run a registered agent in this process: its attempts are claimed as they come due and go
        to ``receive``, whatever its webhook.

        ``receive(lease, lease_seconds)`` says whether it takes the attempt; it must not run it in
        the calling thread. The lease is this process's, and is served by ``agent``. Raises
        ``ValueError`` when the agent is hosted on this ``Kernel`` already.
        """
        dispatcher = self.dispatcher()
        dispatcher.host(agent_id, receive)
        dispatcher.start()

    def unhost(self, agent_id: str) -> None:
        """Claim nothing more for it; attempts that were taken go on. A closed kernel claims nothing
        anyway."""
        dispatcher = self._dispatcher
        if dispatcher is not None and not dispatcher.store.abandoned:
            dispatcher.unhost(agent_id)

    def stop_deliveries(self) -> None:
        """Claim nothing more for anybody; what was delivered goes on."""
        with self._opening:
            dispatcher, self._dispatcher = self._dispatcher, None
        if dispatcher is not None and not dispatcher.store.abandoned:
            dispatcher.stop()

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
        input_json = PLAIN.encode(input, "input")
        wanted = Wanted(agent_id, input_json, key=idempotency_key)
        create = self.core.records.creation(wanted, now)

        def work(db: Connection) -> tuple[ExecutionRow, Claim | None]:
            if tables.agent_lease_seconds(db, agent_id) is None:
                registry.put_agent(db, AgentRow(agent_id, "", "", 0, 0, None, now.wall))
            row = create(db)
            return row, claim(row.id, db)

        claim = self._claiming(now, holder)
        row, claimed = claim.committed(work)
        self.core.retention.sweep_if_due()
        return execution_view(row), claimed

    def claim(self, execution_id: str, *, holder: threading.Thread | None = None) -> Claim | None:
        """Take the lease of an execution, if it is free and due (protocol.md 5.2).

        The lease of a process that has died is free at once. Whoever claims must run the handler.
        ``holder``: the thread that will; when it ends, or claims the same execution again, without
        having given the lease back, the lease is free as well.
        """
        self._read(lambda _: None)  # A sleep may be over.
        claim = self._claiming(Moment.of(self._clock), holder)
        return claim.committed(lambda db: claim(execution_id, db))

    def _claiming(self, now: Moment, holder: threading.Thread | None) -> Claiming:
        return Claiming(self._store(), holder, self.core.lease_timeout, now)

    def leave_claim(self, claim: Claim) -> None:
        """Its thread has given the claim up while bodies of it still run: the lease runs out."""
        attempt = self._store().attempts.get(claim.lease)
        if attempt is not None:
            attempt.leave_to_run_out()

    def watch_lease(self, lease: LeaseKey, over: Callable[[], None]) -> None:
        """Call ``over``, which must not block, when a lease that was claimed here is found to be
        over though its handler has not ended it: cancelled or taken, by whatever process."""
        self._store().watch.keep(lease, over)

    def monotonic(self) -> float:
        """The clock on which this kernel measures leases."""
        return self._clock.monotonic()

    def change_mark(self) -> int:
        """Where the file's changes stand: take it before you look, then ``wait_for_change``."""
        return self._store().database.generation

    def wait_for_change(self, mark: int, timeout: float, execution_id: str = "") -> None:
        """Wait until something was written since ``mark``, by any process; or ``timeout`` seconds.

        May return early: a deadline, the timeout of an approval, the end of a sleep, or the next
        attempt of ``execution_id`` that comes due is a change, and it never waits longer than a
        second.
        """
        store = self._store()
        timers = store.read(lambda db: (next_due(db), waiting.next_attempt(db, execution_id)))
        now = self._clock.boottime()
        left = [max(due - now, _SHORTEST_WAIT_SECONDS) for due in timers if due is not None]
        store.database.wait_for_change(mark, min(timeout, _POLL_CAP_SECONDS, *left))
