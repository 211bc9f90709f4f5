"""One open file: reads, shared writes, who is alive; one for each file and process."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ...errors import StorageError
from ...ports import Clock
from ..attempts import Attempts
from . import boots, tables
from .commits import SharedCommits
from .database import PATIENCE_SECONDS, Database
from .owners import Owner
from .watch import Watch

__all__ = ["Store"]

T = TypeVar("T")


class Store:
    """The file of one kernel. ``Store.open`` gives the same one for the same file."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self.database = database
        self.attempts = Attempts()
        self.owner = Owner(database.lock, str(clock.new_id()), self.attempts)
        self.watch = Watch(database, self.attempts, clock)
        self._commits = SharedCommits(database, self.owner.reassert)
        self.abandoned = False
        self.forked_open = False
        self._users = 0
        self.on_work_queued: list[Callable[[], None]] = []
        """Called when this process has made something due."""
        try:
            self._reanchor(clock)
        except BaseException:
            self._commits.close()
            raise

    def _reanchor(self, clock: Clock) -> None:
        def work(db: sqlite3.Connection) -> None:
            if tables.meta(db, "boot_id") != clock.boot_id():
                boots.reclaim_all(db, clock.wall(), clock.boottime())
                tables.set_meta(db, "boot_id", clock.boot_id())
            self.owner.recognise_lock_file(db)

        self.write(work, durable=True)

    def write(
        self,
        work: Callable[[sqlite3.Connection], T],
        *,
        durable: bool,
        patience: float = PATIENCE_SECONDS,
    ) -> T:
        """Run ``work`` in a transaction of its own (see ``SharedCommits.run``)."""
        return self._commits.run(work, durable=durable, patience=patience)

    def work_queued(self) -> None:
        for call in list(self.on_work_queued):
            call()

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work`` on a connection that only reads."""
        with self.database.reading() as db:
            return work(db)

    # -- one for each file and process

    @classmethod
    def open(cls, path: Path, clock: Clock, *, database_class: type[Database] = Database) -> Store:
        """Open ``path``, or share what this process has open; ``close`` each as often."""
        path = path.absolute()
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"cannot create the folder {path.parent} for the kernel's file: {error.strerror}."
                " Name another file with REBUNO_DB or Kernel(path)."
            ) from error
        path = path.resolve()
        with _opening:
            store = _open.get(path)
            if store is None:
                store = _open[path] = cls._of(database_class(path, clock.monotonic), clock)
            store._users += 1
            return store

    @classmethod
    def _of(cls, database: Database, clock: Clock) -> Store:
        try:
            return cls(database, clock)
        except BaseException:
            database.close()
            raise

    def close(self) -> None:
        """Close the file when its last user in this process closes it."""
        # Nobody opens it meanwhile: closing one descriptor of the lock file drops all locks of
        # this process on it, those of a new store as well.
        with _opening:
            self._users -= 1
            if self._users > 0 or _open.get(self.database.path) is not self:
                return
            del _open[self.database.path]
            self.watch.close()
            try:
                # On a full disk others find out by the lock that we are gone.
                with suppress(StorageError):
                    self.owner.leave(lambda work: self.write(work, durable=False))
                self._commits.close()
            finally:
                self.database.close()


_open: dict[Path, Store] = {}
_opening = threading.RLock()


def _forget_inherited() -> None:
    global _opening
    _opening = threading.RLock()
    for store in _open.values():
        store.abandoned = True
        store.forked_open = store.database.has_connections
        store.database.leak()
    _open.clear()


os.register_at_fork(after_in_child=_forget_inherited)
