"""Who holds leases, and whether they are alive (see ``locks``).

A process that claims takes a slot: it locks the slot's byte and writes its nonce beside the slot.
A nonce that is gone from the table, or whose byte can be locked, belonged to a process that has
ended. Everything here happens under the write lock, so two processes never probe at once.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from threading import Thread

from ...types import LeaseKey
from ..attempts import Attempts
from ..locks import LockFile, owner_byte
from ..processes import process_mark, still_runs
from . import tables
from .rows import REMOTE

__all__ = ["Owner"]


class Owner:
    """This process, as the owner of leases in one file."""

    def __init__(self, lock: LockFile, nonce: str, attempts: Attempts) -> None:
        self.nonce = nonce
        self._lock = lock
        self._attempts = attempts
        self._slot: int | None = None

    def recognise_lock_file(self, db: sqlite3.Connection) -> None:
        """Owners that were known by another lock file, since deleted, can no longer be probed."""
        if tables.meta(db, "lock_file") != self._lock.identity:
            tables.set_meta(db, "lock_file", self._lock.identity)
            _forget_slots(db)

    def present(self, db: sqlite3.Connection) -> str:
        """This process's nonce, with its slot taken."""
        self.recognise_lock_file(db)
        if self._slot is None:
            self._slot = self._take_slot()
        if _owner_slot(db, self.nonce) != self._slot:
            _put_owner(db, self.nonce, self._slot, os.getpid(), process_mark(os.getpid()))
        return self.nonce

    def _take_slot(self) -> int:
        slot = 0
        while not self._lock.take(owner_byte(slot)):
            slot += 1
        return slot

    def reassert(self) -> None:
        """Lock our byte again: somebody in this process may have opened and closed the lock
        file, or deleted it."""
        if self._slot is not None and not self._lock.take(owner_byte(self._slot)):
            self._slot = None  # Another process has it in a new lock file.

    def holds(
        self, db: sqlite3.Connection, nonce: str | None, lease: LeaseKey, asking: Thread | None
    ) -> bool:
        """Whether ``lease`` may still be run by the process with ``nonce``."""
        if nonce is None:
            return False
        if nonce == REMOTE:
            return True
        if nonce == self.nonce:
            attempt = self._attempts.get(lease)
            return attempt is not None and attempt.lives(asking)
        slot = _owner_slot(db, nonce)
        if slot is None:
            return False
        if slot < 0 or tables.meta(db, "lock_file") != self._lock.identity:
            return True  # Nobody can tell, so its lease decides.
        if slot != self._slot:
            if not self._lock.take(owner_byte(slot)):
                return True
            self._lock.drop(owner_byte(slot))
            pid, mark = _owner_process(db, nonce)
            if pid != os.getpid() and still_runs(pid, mark):
                return True  # It lost its byte: something in it opened and closed the lock file.
        _drop_owner(db, nonce)
        return False

    def leave(self, write: Callable[[Callable[[sqlite3.Connection], None]], None]) -> None:
        """Give the slot back on closing. a handler that runs on keeps its lease."""
        if self._slot is None:
            return
        if self._attempts:
            write(lambda db: _forget_slots(db, self.nonce))
        else:
            write(lambda db: _drop_owner(db, self.nonce))
        self._lock.drop(owner_byte(self._slot))
        self._slot = None


# -- the table


def _owner_slot(db: sqlite3.Connection, nonce: str) -> int | None:
    row = db.execute("SELECT slot FROM owners WHERE nonce = ?", (nonce,)).fetchone()
    return None if row is None else row[0]


def _forget_slots(db: sqlite3.Connection, nonce: str = "") -> None:
    """Keep who owned, but not where to look for them (or for one of them): slots turn negative."""
    db.execute(
        "UPDATE owners SET slot = -1 - slot WHERE slot >= 0 AND (nonce = ? OR ? = '')",
        (nonce, nonce),
    )


def _put_owner(db: sqlite3.Connection, nonce: str, slot: int, pid: int, mark: str) -> None:
    db.execute("INSERT OR REPLACE INTO owners VALUES (?, ?, ?, ?)", (nonce, slot, pid, mark))


def _owner_process(db: sqlite3.Connection, nonce: str) -> tuple[int, str]:
    """The pid of an owner, and the mark that tells it from a later process with that pid."""
    row: tuple[int, str] = db.execute(
        "SELECT pid, mark FROM owners WHERE nonce = ?", (nonce,)
    ).fetchone()
    return row


def _drop_owner(db: sqlite3.Connection, nonce: str) -> None:
    db.execute("DELETE FROM owners WHERE nonce = ?", (nonce,))
