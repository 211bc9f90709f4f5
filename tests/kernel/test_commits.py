"""Shared commits: many writers, one transaction, each on its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.waiting import wait_until

from rebuno_sync.clock import ManualClock
from rebuno_sync.errors import ConflictError, StorageError
from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel.store import Connection, Database, Store

from .moves import AGENT, attempt, call, once

FULL, NORMAL = 2, 1


class Tables:
    """A file with one table of our own, and what its commits looked like."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.levels: list[int] = []
        self.write(lambda db: db.execute("CREATE TABLE t (name TEXT PRIMARY KEY)") and None)

    def write(self, work: Callable[[Connection], object], *, durable: bool = True) -> object:
        return self.store.write(work, durable=durable)

    def names(self) -> list[str]:
        def work(db: Connection) -> list[str]:
            return [name for (name,) in db.execute("SELECT name FROM t ORDER BY rowid")]

        return self.store.read(work)


def insert(name: str) -> Callable[[Connection], str]:
    def work(db: Connection) -> str:
        db.execute("INSERT INTO t VALUES (?)", (name,))
        return name

    return work


def insert_then(name: str, error: Exception) -> Callable[[Connection], str]:
    def work(db: Connection) -> str:
        db.execute("INSERT INTO t VALUES (?)", (name,))
        raise error

    return work


@pytest.fixture
def tables(path: Path, clock: ManualClock) -> Iterator[Tables]:
    store = Store.open(path, clock)
    yield Tables(store)
    store.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as threads:
        yield threads


@contextmanager
def gathering(tables: Tables, pool: ThreadPoolExecutor) -> Iterator[Callable[..., Future[object]]]:
    """Hold the commit that is going on, so that what is written meanwhile shares the next one.

    Gives a function that writes in another thread and returns when its write is waiting, after
    those before it.
    """
    entered, leave = threading.Event(), threading.Event()

    def hold(db: Connection) -> None:
        entered.set()
        assert leave.wait(20)

    def write(work: Callable[[Connection], object], *, durable: bool = False) -> Future[object]:
        waiting = len(queue)
        future = pool.submit(tables.write, work, durable=durable)
        wait_until(lambda: len(queue) > waiting, "a write joining the queue")
        return future

    holding = pool.submit(tables.write, hold, durable=False)
    assert entered.wait(20)
    queue = tables.store._commits._queue
    try:
        yield write
    finally:
        leave.set()
    holding.result(20)


@contextmanager
def commits(database: Database) -> Iterator[list[int]]:
    """The level of ``PRAGMA synchronous`` at each commit, as SQLite's own trace tells it."""
    levels: list[int] = []
    with database.writing(20):
        (level,) = database.writer.execute("PRAGMA synchronous").fetchone()
        now = [level]

        def trace(statement: str) -> None:
            if statement.startswith("PRAGMA synchronous = "):
                now[0] = {"FULL": FULL, "NORMAL": NORMAL}[statement.rpartition(" ")[2]]
            elif statement == "COMMIT":
                levels.append(now[0])

        database.writer.set_trace_callback(trace)
    yield levels
    with database.writing(20):
        database.writer.set_trace_callback(None)


def test_writes_that_wait_share_a_commit(tables: Tables, pool: ThreadPoolExecutor) -> None:
    """What queued up behind one commit is one commit, in the order of arrival."""
    with commits(tables.store.database) as levels:
        with gathering(tables, pool) as write:
            results = [write(insert(name)) for name in "cab"]
        assert [future.result(20) for future in results] == list("cab")
        assert len(levels) == 2
    assert tables.names() == list("cab")


def test_a_bad_member_fails_alone(tables: Tables, pool: ThreadPoolExecutor) -> None:
    """An exception of one member undoes what it wrote, and nothing of the others."""
    with gathering(tables, pool) as write:
        good = write(insert("good"))
        bad = write(insert_then("bad", ConflictError("no")))
        also = write(insert("also good"))
    assert (good.result(20), also.result(20)) == ("good", "also good")
    with pytest.raises(ConflictError, match="no"):
        bad.result(20)
    assert tables.names() == ["good", "also good"]


def test_an_error_of_sqlite_fails_its_member_alone(
    tables: Tables, pool: ThreadPoolExecutor
) -> None:
    """When SQLite refuses a statement of one member, the others are committed all the same."""
    tables.write(insert("taken"))
    with gathering(tables, pool) as write:
        before = write(insert("before"))
        twice = write(insert("taken"))
        broken = write(lambda db: db.execute("SELECT nonsense"))
        after = write(insert("after"))
    assert (before.result(20), after.result(20)) == ("before", "after")
    for failed in (twice, broken):
        with pytest.raises(StorageError, match=str(tables.store.database.path)):
            failed.result(20)
    assert tables.names() == ["taken", "before", "after"]


def test_a_lone_member_is_undone_as_well(tables: Tables) -> None:
    """Without company an exception undoes the transaction."""
    with pytest.raises(ConflictError):
        tables.write(insert_then("bad", ConflictError()))
    tables.write(insert("good"))
    assert tables.names() == ["good"]


def test_a_member_that_runs_again_is_written_once(tables: Tables, pool: ThreadPoolExecutor) -> None:
    """A member may run twice when a neighbour breaks the transaction; what it wrote stands once."""
    runs: list[str] = []

    def count(db: Connection) -> int:
        runs.append("run")
        db.execute("INSERT INTO t VALUES ('counted')")
        return len(runs)

    with gathering(tables, pool) as write:
        counted = write(count)
        write(lambda db: db.execute("SELECT nonsense"))
    assert counted.result(20) == len(runs) == 2
    assert tables.names() == ["counted"]


def test_results_come_after_the_commit(tables: Tables, pool: ThreadPoolExecutor) -> None:
    """Whoever has its result finds what it wrote in the file, through any connection."""

    def write_and_look(number: int) -> bool:
        name = str(tables.write(insert(f"{number}")))
        return name in tables.names()

    assert all(pool.map(write_and_look, range(200)))


def test_members_see_what_is_before_them(tables: Tables, pool: ThreadPoolExecutor) -> None:
    """Writes act one after another, also within a commit."""

    def count(db: Connection) -> int:
        (count,) = db.execute("SELECT count(*) FROM t").fetchone()
        return int(count)

    with gathering(tables, pool) as write:
        seen = [write(count), write(insert("a")), write(count), write(insert("b")), write(count)]
    assert [future.result(20) for future in seen] == [0, "a", 1, "b", 2]


@pytest.mark.parametrize(
    ("members", "level"),
    [
        ([False, False], NORMAL),
        ([True, False], FULL),
        ([False, True], FULL),
        ([False, False, False, True], FULL),
        ([True], FULL),
        ([False], NORMAL),
    ],
)
def test_a_commit_is_as_durable_as_its_neediest_member(
    tables: Tables, pool: ThreadPoolExecutor, members: list[bool], level: int
) -> None:
    """One member that must survive a loss of power makes the whole commit do so; none, none."""
    with commits(tables.store.database) as levels:
        with gathering(tables, pool) as write:
            written = [write(insert(f"{n}"), durable=durable) for n, durable in enumerate(members)]
        for future in written:
            future.result(20)
        assert levels == [NORMAL, level]


def test_what_a_promise_rests_on_is_durable(kernel: Kernel) -> None:
    """Creations, claims, outcomes, at-most-once intents and ends are synced; the rest
    need no sync.
    """
    agent = kernel.agent
    with commits(kernel._store().database) as levels:

        def level(act: Callable[[], object]) -> tuple[object, int]:
            levels.clear()
            result = act()
            (found,) = levels
            return result, found

        execution, found = level(lambda: kernel.create(AGENT))
        assert found == FULL
        lease, found = level(lambda: attempt(kernel, execution.id))
        assert found == FULL
        safe, found = level(lambda: agent.submit(lease, call()))
        assert found == NORMAL
        strict, found = level(lambda: agent.submit(lease, once()))
        assert found == FULL
        assert level(lambda: agent.complete_step(lease, safe.step_id, "1"))[1] == FULL
        assert level(lambda: agent.fail_step(lease, strict.step_id, "1"))[1] == FULL
        assert level(lambda: agent.renew([lease]))[1] == NORMAL
        assert level(lambda: agent.release(lease))[1] == NORMAL
        again = attempt(kernel, execution.id)
        assert level(lambda: agent.complete(again, "1"))[1] == FULL
        failing = attempt(kernel, kernel.create(AGENT).id)
        assert level(lambda: agent.fail(failing, "no"))[1] == FULL
        doomed = kernel.create(AGENT).id
        assert level(lambda: kernel.cancel(doomed))[1] == FULL


def test_a_replay_writes_nothing(kernel: Kernel) -> None:
    """A settled step is met without a commit."""
    lease = attempt(kernel, kernel.create(AGENT).id)
    for number in range(3):
        step_id = kernel.agent.submit(lease, call("work", number)).step_id
        kernel.agent.complete_step(lease, step_id, "1")
    kernel.agent.release(lease)
    lease = attempt(kernel, lease.execution_id)
    with commits(kernel._store().database) as levels:
        for number in range(3):
            assert kernel.agent.submit(lease, call("work", number)).decision == "replay"
        assert levels == []
