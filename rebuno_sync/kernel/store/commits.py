"""Writers of one process share commits: whoever comes first leads and commits what has queued up.

A member of a shared commit is a function of the transaction. It may run more than once before its
commit, so it must have no effect besides what it writes; what it returns is handed out after the
commit.

The main thread never leads: an interrupt (Ctrl-C, a framework's time limit) is raised there,
between any two instructions, and would leave the transaction or the leadership hanging. A thread
of this module leads in its place.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

from ...errors import StorageError
from .database import Database
from .faults import PATIENCE_SECONDS, storage_error

__all__ = ["SharedCommits"]

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

_LARGEST_BATCH = 64
_DEEPEST_LEAD = 48
_LOOK_AGAIN_SECONDS = 0.02


class _Ticket(Generic[T]):
    """One waiting write."""

    __slots__ = (
        *("durable", "error", "over", "patience", "result", "settled", "taken", "turn"),
        *("withdrawn", "work"),
    )

    result: T

    def __init__(self, work: Work[T], durable: bool, patience: float) -> None:
        self.work = work
        self.durable = durable
        self.patience = patience
        self.error: BaseException | None = None
        self.taken = False
        self.settled = False
        self.over = False
        self.withdrawn = False
        # Released once: when the ticket is settled, or when it is its turn to lead.
        self.turn = threading.Lock()
        self.turn.acquire()


class SharedCommits:
    """Runs writes one after another, as many as are waiting in each commit."""

    def __init__(self, database: Database, before_each: Callable[[], None]) -> None:
        self._database = database
        self._before_each = before_each
        self._guard = threading.Lock()
        self._queue: list[_Ticket[object]] = []
        self._leader: _Ticket[object] | None = None
        self._stand_in: _StandIn | None = None

    def close(self) -> None:
        """End the thread that leads in the main thread's place, when it has done what it was
        handed. A later write starts one anew."""
        stand_in, self._stand_in = self._stand_in, None
        if stand_in is not None:
            stand_in.end()

    def run(self, work: Work[T], *, durable: bool, patience: float = PATIENCE_SECONDS) -> T:
        """Run ``work`` in a transaction and return its result once that is committed.

        An exception of ``work`` undoes what it wrote and is raised. ``StorageError`` means that
        whether it was written is unknown; after ``patience`` seconds of waiting for other
        processes, that it was not. An interrupt is raised when the write has been decided one way
        or the other.
        """
        ticket: _Ticket[T] = _Ticket(work, durable, patience)
        _need_room(_DEEPEST_LEAD)
        if threading.current_thread() is threading.main_thread():
            self._wait_interruptibly(ticket)  # type: ignore[arg-type]
        else:
            self._wait_or_lead(ticket)  # type: ignore[arg-type]
        if ticket.error is not None:
            raise ticket.error
        return ticket.result

    # -- waiting

    def _wait_or_lead(self, ticket: _Ticket[object]) -> None:
        if not self._join(ticket) and not ticket.turn.acquire(timeout=ticket.patience):
            if self._leave(ticket):
                ticket.error = StorageError(
                    f"the kernel's file {self._database.path}: other writes have waited for it for"
                    f" {ticket.patience:.0f} seconds; is a process that holds it stopped?"
                )
                return
            ticket.turn.acquire()
        if not ticket.settled:
            self._lead()

    def _leave(self, ticket: _Ticket[object]) -> bool:
        """Take a ticket out of the queue whose patience is over, unless its commit is under way."""
        with self._guard:
            if ticket.taken or ticket.settled or ticket is self._leader:
                return False
            self._queue.remove(ticket)
            return True

    def _wait_interruptibly(self, ticket: _Ticket[object]) -> None:
        if self._stand_in is None:
            self._stand_in = _StandIn(self._wait_or_lead)
        done = self._stand_in.hand_over(ticket)
        try:
            done.acquire()
        except BaseException:
            ticket.withdrawn = True  # And no more than that: the next interrupt may strike here.
            while not ticket.over:  # The lock may be ours already: it struck just after.
                done.acquire(timeout=_LOOK_AGAIN_SECONDS)
            raise

    def _join(self, ticket: _Ticket[object]) -> bool:
        """Queue the ticket; whether its thread is to lead."""
        with self._guard:
            self._queue.append(ticket)
            if self._leader is None:
                self._leader = ticket
            return self._leader is ticket

    # -- leading

    def _lead(self) -> None:
        """Commit what is queued, this thread's ticket first, and hand the lead on."""
        mine = self._leader
        assert mine is not None
        try:
            with self._database.writing(mine.patience):
                self._before_each()
                with self._guard:
                    batch = self._queue[:_LARGEST_BATCH]
                    for ticket in batch:
                        ticket.taken = True
                self._commit(batch)
        except Exception as error:
            if not mine.settled:
                mine.error = error
                self._settle([mine])
        finally:
            self._hand_on()

    def _hand_on(self) -> None:
        with self._guard:
            self._leader = self._queue[0] if self._queue else None
            if self._leader is not None:
                self._leader.turn.release()

    def _commit(self, batch: list[_Ticket[object]]) -> None:
        database = self._database
        database.rollback()
        batch = self._begin(batch)
        if not batch:
            return
        before = database.writer.total_changes
        try:
            wrote = self._run_members(batch)
        except sqlite3.Error as error:
            database.rollback()
            if len(batch) > 1:
                # SQLite may have undone the whole transaction for one member's sake: each alone.
                for ticket in batch:
                    self._commit([ticket])
            else:
                batch[0].error = storage_error(database.path, error)
                self._settle(batch)
            return
        if not wrote:
            database.rollback()
            self._settle(batch)
            return
        try:
            database.commit()
        except sqlite3.Error as error:
            # The next opener may find it committed after all: nobody may call it undone.
            database.reopen()
            for ticket in batch:
                ticket.error = storage_error(database.path, error)
            self._settle(batch)
            return
        self._settle(batch)
        # What changes nothing is no news: whoever waits for a change may write such things to see.
        database.committed(news=database.writer.total_changes != before)

    def _begin(self, batch: list[_Ticket[object]]) -> list[_Ticket[object]]:
        """Open the transaction; the members that had the patience to wait for it.

        When the leader itself has not, the others stay in the queue for the next one.
        """
        waited = 0.0
        while batch:
            patience = min(ticket.patience for ticket in batch)
            try:
                self._database.begin(
                    patience - waited, durable=any(ticket.durable for ticket in batch)
                )
                return batch
            except sqlite3.Error as error:
                waited = patience
                given_up = [ticket for ticket in batch if ticket.patience <= waited]
                for ticket in given_up:
                    ticket.error = storage_error(self._database.path, error)
                leading = self._leader not in given_up
                self._settle(given_up)
                batch = [ticket for ticket in batch if not ticket.settled] if leading else []
        return []

    def _run_members(self, batch: list[_Ticket[object]]) -> bool:
        """Run each member; whether there is anything to commit."""
        if len(batch) == 1:
            return self._run_member(batch[0])
        wrote = False
        connection = self._database.writer
        for ticket in batch:
            connection.execute("SAVEPOINT member")
            if self._run_member(ticket):
                wrote = True
            else:
                connection.execute("ROLLBACK TO member")
            connection.execute("RELEASE member")
        return wrote

    def _run_member(self, ticket: _Ticket[object]) -> bool:
        if ticket.withdrawn:
            return False
        try:
            ticket.result = ticket.work(self._database.writer)
        except sqlite3.Error:
            raise
        except Exception as error:
            ticket.error = error
            return False
        ticket.error = None
        return True

    def _settle(self, batch: list[_Ticket[object]]) -> None:
        with self._guard:
            for ticket in batch:
                ticket.settled = True
                self._queue.remove(ticket)
                if ticket is not self._leader:
                    ticket.turn.release()


class _StandIn:
    """A thread that takes tickets through the queue for the main thread, in order.

    An interrupt may leave a ticket with it, which nobody waits for: the order then sees to it that
    the main thread's next write finds that one decided.
    """

    def __init__(self, take_through: Callable[[_Ticket[object]], None]) -> None:
        self._take_through = take_through
        self._handed: SimpleQueue[tuple[_Ticket[object], threading.Lock] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name="rebuno-commits", daemon=True)
        self._thread.start()

    def hand_over(self, ticket: _Ticket[object]) -> threading.Lock:
        """Start on ``ticket``; the lock that is returned can be acquired when it is settled."""
        done = threading.Lock()
        done.acquire()
        self._handed.put((ticket, done))
        return done

    def end(self) -> None:
        """Take what was handed over through the queue, and no more."""
        self._handed.put(None)
        self._thread.join()

    def _loop(self) -> None:
        while (handed := self._handed.get()) is not None:
            ticket, done = handed
            try:
                self._take_through(ticket)
            finally:
                ticket.over = True
                done.release()


def _need_room(frames: int) -> None:
    """Raise ``RecursionError`` here, where nothing is queued, and not in the middle of leading."""
    if frames:
        _need_room(frames - 1)
