"""A disk that is full, in the middle of a run and at the start."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.histories import check_file, check_history

import rebuno_sync as rebuno
from rebuno_sync.clock import SYSTEM
from rebuno_sync.errors import StorageError
from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel.store import Connection, Database, Store
from rebuno_sync.types import Renewal

from .moves import AGENT, call, kinds, perform, start

BIG = "x" * 200_000


@contextmanager
def full(database: Database) -> Iterator[None]:
    """The file may not grow any more: SQLite answers as it does on a full disk."""
    with database.writing(20):
        (pages,) = database.writer.execute("PRAGMA page_count").fetchone()
        database.writer.execute(f"PRAGMA max_page_count = {pages}")
    yield
    with database.writing(20):
        database.writer.execute("PRAGMA max_page_count = 1073741823")


def test_c28_a_full_disk_refuses_what_does_not_fit(path: Path) -> None:
    """A submit, an outcome, an end that does not fit is a `StorageError` that says what to do; the
    rest stands.
    """
    with Kernel(path) as kernel:
        kernel.register_agent(AGENT)
        lease = start(kernel)
        kept = perform(kernel, lease, call("kept"), 1)
        open_id = kernel.agent.submit(lease, call("open")).step_id
        before = kinds(kernel, lease.execution_id)
        with full(kernel._store().database):
            for attempted in (
                lambda: kernel.agent.submit(lease, call("new", BIG)),
                lambda: kernel.agent.complete_step(lease, open_id, f'"{BIG}"'),
                lambda: kernel.agent.fail_step(lease, open_id, f'"{BIG}"'),
                lambda: kernel.agent.complete(lease, f'"{BIG}"'),
                lambda: kernel.create(AGENT, BIG),
            ):
                with pytest.raises(StorageError, match=r"disk is full.*make room") as caught:
                    attempted()
                assert str(path) in str(caught.value)
            assert kinds(kernel, lease.execution_id) == before
            assert kernel.get_step(lease.execution_id, kept).result == 1
            assert kernel.agent.renew([lease]) == [Renewal.ACCEPTED]
        perform(kernel, lease, call("new", BIG))
        assert kernel.agent.complete_step(lease, open_id, f'"{BIG}"').decision == "recorded"
        kernel.agent.complete(lease, f'"{BIG}"')
        check_history(kernel, lease.execution_id)
    check_file(path)


def test_a_kernel_can_be_closed_on_a_full_disk(path: Path) -> None:
    """Closing needs no room, and the lease that was open is free for whoever opens the
    file next.
    """
    with Kernel(path) as kernel:
        kernel.register_agent(AGENT)
        lease = start(kernel)
        database = kernel._store().database
        with database.writing(20):
            database.writer.execute("PRAGMA query_only = ON")  # No write succeeds any more.
    with Kernel(path) as kernel:
        assert kernel.claim(lease.execution_id) is not None


def test_a_submit_that_did_not_fit_used_up_no_place(path: Path) -> None:
    """The same call gets the same step when there is room again."""
    with Kernel(path) as kernel:
        kernel.register_agent(AGENT)
        lease = start(kernel)
        with full(kernel._store().database), pytest.raises(StorageError):
            kernel.agent.submit(lease, call("big", BIG))
        kernel.agent.submit(lease, call("big", BIG))
        (step,) = kernel.list_steps(lease.execution_id)
        assert step.occurrence == 0


def test_a_full_disk_fails_only_who_needs_room(path: Path) -> None:
    """Of writes that share a commit, those that fit are committed."""
    store = Store.open(path, SYSTEM)
    try:
        store.write(lambda db: db.execute("CREATE TABLE t (text)") and None, durable=True)
        with full(store.database), ThreadPoolExecutor(8) as pool:

            def insert(text: str) -> bool:
                def work(db: Connection) -> None:
                    db.execute("INSERT INTO t VALUES (?)", (text,))

                try:
                    store.write(work, durable=True)
                except StorageError:
                    return False
                return True

            written = list(pool.map(insert, ["small", BIG] * 8))
        assert written == [True, False] * 8
        assert store.read(lambda db: db.execute("SELECT count(*) FROM t").fetchone()) == (8,)
    finally:
        store.close()


class Heard(logging.Handler):
    """Sets an event when a message with certain words is logged."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words
        self.event = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self.words in record.getMessage():
            self.event.set()


@pytest.mark.slow
def test_c28_a_run_goes_on_when_there_is_room_again(path: Path) -> None:
    """A run that meets a full disk is interrupted, waits, and resumes: no effect is done twice."""
    done: list[int] = []

    @rebuno.tool
    def work(number: int, text: str) -> int:
        done.append(number)
        return number

    def handler() -> int:
        return sum(work(number, "" if number < 3 else BIG) for number in range(6))

    heard = Heard("disk is full")
    logger = logging.getLogger("rebuno_sync")
    level = logger.level
    logger.addHandler(heard)
    logger.setLevel(logging.INFO)
    try:
        with Kernel(path) as kernel, ThreadPoolExecutor(1) as pool:
            with full(kernel._store().database):
                running = pool.submit(
                    rebuno.run, handler, key="k", agent=AGENT, kernel=kernel, timeout=60
                )
                assert heard.event.wait(20)
                assert not running.done()
                assert max(done) < 3
            assert running.result(60) == 15
            assert done == list(range(6))
            found = kernel.find(AGENT, "k")
            assert found is not None
            check_history(kernel, found.id)
    finally:
        logger.removeHandler(heard)
        logger.setLevel(level)


class Crammed(Database):
    """A file on a disk that is full from the start."""

    def begin(self, patience: float, *, durable: bool) -> None:
        (pages,) = self.writer.execute("PRAGMA page_count").fetchone()
        self.writer.execute(f"PRAGMA max_page_count = {pages}")
        super().begin(patience, durable=durable)


def test_c28_a_disk_that_is_full_at_the_start(path: Path) -> None:
    """Opening says so or works; either way the file can be opened and is whole when there
    is room.
    """
    Kernel(path).close()
    before = path.read_bytes()
    store = Store.open(path, SYSTEM, database_class=Crammed)
    with pytest.raises(StorageError, match="full"):
        store.write(
            lambda db: db.execute("CREATE TABLE big AS SELECT zeroblob(1000000)") and None,
            durable=True,
        )
    store.close()
    assert len(path.read_bytes()) == len(before)
    check_file(path)
    with Kernel(path) as kernel:
        kernel.register_agent(AGENT)
        assert kernel.create(AGENT).status == "running"
