"""One SQLite file as this process uses it: connections, commits, the log, and waiting for change.

Knows SQLite and nothing of our tables. What is written here rests on facts about SQLite that the
design page lists: WAL mode is set under a lock, automatic checkpoints are off, the file is opened
through SQLite only, and no connection is open across a fork.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...errors import StorageError
from ..locks import WRITE, LockFile
from .faults import PATIENCE_SECONDS, storage_errors
from .gate import GATE
from .migrations import MIGRATIONS

__all__ = ["PATIENCE_SECONDS", "Connection", "Database"]

Connection = sqlite3.Connection
"""What a rule gets: the open transaction. Rules hand it to ``tables`` and do nothing else with
it."""

APPLICATION_ID = 0x7262_6E6F
"""``rbno``: marks our files, so that another program's database is never touched."""

CHECKPOINT_EVERY_COMMITS = 1000

LONG_LOG_BYTES = 16 * 2**20
"""A longer log is checkpointed whoever wrote it, and cut to this when it starts anew."""

CHECKPOINT_LONG_LOG_EVERY_COMMITS = 50
"""So soon after the end of a reader that kept a log from starting anew, it does."""

POLL_SECONDS = 0.02
"""How often a waiting thread asks whether another process has written."""

_BEGIN_TRY_SECONDS = 0.1

_SCHEMA = Path(__file__).parent.parent / "schema.sql"


class Database:
    """The connections of one process to one file. Writes go through ``SharedCommits`` only."""

    migrations = MIGRATIONS

    def __init__(self, path: Path, monotonic: Callable[[], float]) -> None:
        self.path = path
        self.lock = LockFile(path.with_name(path.name + "-lock"))
        self._monotonic = monotonic
        self._pool: list[sqlite3.Connection] = []
        self._writer: sqlite3.Connection | None = None
        self._durable = True
        self._watch: sqlite3.Connection | None = None
        self._guard = threading.Lock()
        self._changed = threading.Condition(self._guard)
        self._polling = False
        self._ended = threading.Event()
        self._version: int | None = None
        self._generation = 0
        self._commits_since_checkpoint = 0
        self._log = path.with_name(path.name + "-wal")
        self._log_bytes_checkpointed = 0
        try:
            with self.writing(PATIENCE_SECONDS), storage_errors(path):
                self._create_file()
                self._prepare(self.writer)
        except BaseException:
            self.close_connections()
            self.lock.close()
            raise
        GATE.on_fork(self.close_connections)

    # -- opening

    def _create_file(self) -> None:
        """Make the file with mode 0600; one that exists is left to SQLite."""
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            if self.path.is_file() and self.path.stat().st_nlink > 1:
                raise StorageError(
                    f"{self.path} has another name too (a hard link); SQLite would keep a log for"
                    " each and lose records. Remove one of the names."
                ) from None
            if self.path.is_dir():
                raise StorageError(
                    f"{self.path} is a folder; name a file for the kernel with REBUNO_DB or"
                    " Kernel(path)"
                ) from None
            return
        except OSError as error:
            raise StorageError(f"cannot create {self.path}: {error.strerror}") from error

    def _connect(self, busy_seconds: float) -> sqlite3.Connection:
        if self._ended.is_set():
            raise StorageError(f"the kernel's file {self.path} was closed meanwhile")
        connection = sqlite3.connect(
            self.path,
            timeout=busy_seconds,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute(f"PRAGMA journal_size_limit = {LONG_LOG_BYTES}")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA cache_size = -2000")
        except BaseException:  # the file may be no database
            connection.close()
            raise
        return connection

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Recognise the file and bring it to the present schema."""
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (version,) = db.execute("PRAGMA user_version").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application not in (0, APPLICATION_ID) or (application == 0 and tables):
            raise StorageError(
                f"{self.path} is another program's SQLite database; name a file of its own for the"
                " kernel with REBUNO_DB or Kernel(path). Nothing was changed."
            )
        newest = 1 + len(self.migrations)
        if version > newest:
            raise StorageError(
                f"{self.path} was written by a newer rebuno_sync (schema {version}, this one knows"
                f" {newest}); upgrade rebuno_sync. Nothing was changed."
            )
        (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StorageError(
                f"SQLite cannot keep a write-ahead log beside {self.path} (journal mode is {mode});"
                " put the file on a local disk."
            )
        if version < newest:
            scripts = [_SCHEMA.read_text(), *self.migrations][version:]
            db.execute("BEGIN IMMEDIATE")
            for statement in "".join(scripts).split(";\n"):
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {newest}")
            self.commit()

    # -- writing

    @contextmanager
    def writing(self, patience: float) -> Iterator[None]:
        """Hold the write lock among our processes; ``StorageError`` after ``patience`` seconds."""
        self.lock.follow()
        self.lock.take_within(WRITE, patience, self._monotonic)
        try:
            with GATE.inside():
                yield
        finally:
            self.lock.drop(WRITE)

    @property
    def writer(self) -> sqlite3.Connection:
        """The connection that writes; use it under ``writing`` only."""
        if self._writer is None:
            self._writer = self._connect(_BEGIN_TRY_SECONDS)
            self._durable = True
        return self._writer

    def begin(self, patience: float, *, durable: bool) -> None:
        """Open a write transaction; ``durable`` commits survive a loss of power.

        Programs that are not ours may hold SQLite's own lock; they are waited for ``patience``
        seconds.
        """
        writer = self.writer
        if durable is not self._durable:
            level = "FULL" if durable else "NORMAL"
            writer.execute(f"PRAGMA synchronous = {level}")
            self._durable = durable
        limit: float | None = None
        while True:
            try:
                writer.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorname.partition("_")[2][:4] != "BUSY":
                    raise
                limit = limit or self._monotonic() + patience
                if self._monotonic() >= limit:
                    raise

    def commit(self) -> None:
        self.writer.execute("COMMIT")

    def rollback(self) -> None:
        if self._writer is not None and self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    def reopen(self) -> None:
        """After a commit that failed: what SQLite keeps of it in memory is not to be trusted."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(sqlite3.Error):
                writer.close()

    def committed(self, *, news: bool) -> None:
        """After each commit, still under the write lock: wake waiters, keep the log short.

        ``news``: whether it may have changed anything.
        """
        if news:
            with self._guard:
                self._generation += 1
                self._changed.notify_all()
        self._commits_since_checkpoint += 1
        size = self.bytes_of_log()
        grown = self._log_has_grown(size)
        is_long = size > LONG_LOG_BYTES
        every = CHECKPOINT_LONG_LOG_EVERY_COMMITS if is_long else CHECKPOINT_EVERY_COMMITS
        if grown or self._commits_since_checkpoint >= every:
            self._commits_since_checkpoint = 0
            # Under the write lock and right after a commit of our own the log cannot be empty:
            # SQLite before 3.51.3 can corrupt a log whose reset meets a starting checkpoint.
            # A long log waits a moment for readers, whose coming and going would keep it for ever.
            how = "RESTART" if grown else "PASSIVE"
            with suppress(sqlite3.Error):  # What it could not do now, the next one does.
                self.writer.execute(f"PRAGMA wal_checkpoint({how})").fetchall()

    def _log_has_grown(self, size: int) -> bool:
        """Whether the log is long, and longer than at the last checkpoint by a good deal.

        Its size counts the commits of all processes, those that ended soon after they began too.
        A reader of an old snapshot keeps it from starting anew, so not each commit tries.
        """
        if size <= LONG_LOG_BYTES:
            self._log_bytes_checkpointed = 0
        elif size >= self._log_bytes_checkpointed + LONG_LOG_BYTES // 4:
            self._log_bytes_checkpointed = size
            return True
        return False

    # -- reading

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for one read at a time, from a pool."""
        with GATE.inside(), storage_errors(self.path):
            try:
                connection = self._pool.pop()
            except IndexError:
                connection = self._connect(PATIENCE_SECONDS)
                connection.execute("PRAGMA query_only = ON")
            try:
                yield connection
            except BaseException:
                # An unfinished statement would pin the connection to an old snapshot.
                connection.close()
                raise
            self._pool.append(connection)
            if self._ended.is_set():
                self.close_connections()

    # -- waiting

    @property
    def generation(self) -> int:
        """Rises with every change that this process has noticed; read it before you look."""
        return self._generation

    def wait_for_change(self, seen: int, timeout: float) -> None:
        """Wait until the file changed since ``generation`` was ``seen``, or ``timeout`` seconds.

        Commits of this process wake at once; for those of others one waiting thread polls. May
        return early.
        """
        with self._guard:
            if self._generation != seen or self._ended.is_set():
                return
            if self._polling:
                self._changed.wait(timeout)
                return
            self._polling = True
        try:
            while timeout > 0 and self._generation == seen and not self._ended.is_set():
                with self._guard:
                    if self._generation == seen:
                        self._changed.wait(min(timeout, POLL_SECONDS))
                timeout -= POLL_SECONDS
                self._look_for_change()
        finally:
            self._stop_polling()

    def has_changed(self, seen: int) -> bool:
        """Whether the file changed since ``generation`` was ``seen``, asked now."""
        with self._guard:
            polls = not self._polling and self._generation == seen
            self._polling = self._polling or polls
        if polls:
            try:
                self._look_for_change()
            finally:
                self._stop_polling()
        return self._generation != seen

    def _stop_polling(self) -> None:
        with self._guard:
            self._polling = False
            self._changed.notify()  # Another waiter polls next.
            if self._ended.is_set():
                self._close_watch()

    def _look_for_change(self) -> None:
        with GATE.inside(), storage_errors(self.path):
            if self._ended.is_set():
                return
            if self._watch is None:
                self._watch, self._version = self._connect(PATIENCE_SECONDS), None
            (version,) = self._watch.execute("PRAGMA data_version").fetchall()[0]
        with self._guard:
            if version != self._version:
                self._version = version
                self._generation += 1
                self._changed.notify_all()

    # -- ending

    def close_connections(self) -> None:
        """Close every connection; new ones are opened on the next use."""
        pool, self._pool = self._pool, []
        writer, self._writer = self._writer, None
        for connection in pool:
            connection.close()
        if writer is not None:
            writer.close()
        with self._guard:
            if not (self._ended.is_set() and self._polling):  # Else whoever polls closes it.
                self._close_watch()

    def _close_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def close(self) -> None:
        """Close for good. The last to close a file checkpoints it, so this takes the write lock."""
        GATE.forget(self.close_connections)
        with self._guard:
            self._ended.set()
            self._changed.notify_all()
        try:
            with self.writing(PATIENCE_SECONDS):
                self.close_connections()
        finally:
            self.lock.close()

    def bytes_of_file(self) -> int:
        return self.path.stat().st_size

    def bytes_of_log(self) -> int:
        try:
            return self._log.stat().st_size
        except OSError:
            return 0

    @property
    def closed(self) -> bool:
        return self._ended.is_set()

    @property
    def has_connections(self) -> bool:
        return bool(self._pool) or self._watch is not None or self._writer is not None

    def leak(self) -> None:
        """Keep connections that a fork copied from ever being closed, also at exit.

        Only a fork that skipped our hook leaves any. Closing one would delete files of the parent.
        """
        for connection in [*self._pool, self._watch, self._writer]:
            if connection is not None:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
