"""One file, several kernels: of one process, one after another, and of other processes."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from support.children import ChildScript
from support.histories import all_events, check_file, check_history
from support.waiting import wait_until

from rebuno_sync.clock import SYSTEM
from rebuno_sync.errors import StorageError
from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel.store import Database, Store
from rebuno_sync.types import Renewal

from .moves import AGENT, attempt, call, perform, start

PROGRAMS = Path(__file__).parent / "programs"


def _foreign(path: Path) -> closing[sqlite3.Connection]:
    """A connection of another program, as far as the kernel can tell; any thread may use it."""
    return closing(sqlite3.connect(path, check_same_thread=False, isolation_level=None))


def test_two_kernels_of_one_file_are_one(path: Path, tmp_path: Path) -> None:
    """What one writes the other reads, and a lease of the one is known to the other, by any name of
    the file.
    """
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with Kernel(path) as one, Kernel(link) as two, Kernel(tmp_path / "." / path.name) as three:
        one.register_agent(AGENT)
        lease = start(one)
        assert two.claim(lease.execution_id) is None
        assert two.agent.submit(lease, call()).decision == "proceed"
        assert three.agent.renew([lease]) == [Renewal.ACCEPTED]
        two.agent.complete(lease, '"done"')
        assert three.wait(lease.execution_id, timeout=0).output == "done"


def test_closing_one_kernel_leaves_the_other_open(path: Path) -> None:
    """The file stays open, and leases stay held, until its last kernel of this process is
    closed.
    """
    with Kernel(path) as stays:
        stays.register_agent(AGENT)
        with Kernel(path) as goes:
            lease = start(goes)
        assert stays.claim(lease.execution_id) is None
        assert stays.agent.submit(lease, call()).decision == "proceed"
        with Kernel(path) as other:
            assert other.claim(lease.execution_id) is None
        stays.agent.complete(lease, "1")


def test_a_kernel_is_closed_once_however_often_one_says_so(path: Path) -> None:
    """Closing again does nothing, also not to another kernel of the file."""
    with Kernel(path) as other:
        kernel = Kernel(path)
        for _ in range(3):
            kernel.close()
        other.register_agent(AGENT)
        assert other.create(AGENT).status == "running"


def test_a_closed_kernel_says_so(path: Path) -> None:
    """Every use of a closed kernel names the file and that it is closed; a heartbeat says unknown
    or so.
    """
    kernel = Kernel(path)
    kernel.register_agent(AGENT)
    lease = start(kernel)
    kernel.close()
    for use in (
        lambda: kernel.get(lease.execution_id),
        lambda: kernel.create(AGENT),
        lambda: kernel.claim(lease.execution_id),
        lambda: kernel.agent.submit(lease, call()),
        lambda: kernel.agent.complete(lease, "1"),
    ):
        with pytest.raises((ValueError, StorageError), match=r"kernel\.db.* closed"):
            use()


def test_what_was_recorded_is_there_after_reopening(path: Path) -> None:
    """Executions, steps, events and agents survive closing."""
    with Kernel(path) as kernel:
        kernel.register_agent(AGENT)
        lease = start(kernel)
        step_id = perform(kernel, lease, call(), "kept")
        kernel.agent.release(lease)
        before = kernel.get(lease.execution_id), kernel.events(lease.execution_id)
    check_file(path)
    with Kernel(path) as kernel:
        assert kernel.knows_agent(AGENT)
        assert (kernel.get(lease.execution_id), kernel.events(lease.execution_id)) == before
        again = attempt(kernel, lease.execution_id)
        met = kernel.agent.submit(again, call())
        assert (met.decision, met.step_id, met.result) == ("replay", step_id, "kept")


def test_closing_leaves_one_file(path: Path) -> None:
    """After the last kernel is closed the log is gone: the database and its lock file remain."""
    with Kernel(path) as kernel:
        kernel.register_agent(AGENT)
        perform(kernel, start(kernel), call())
        assert path.with_name("kernel.db-wal").exists()
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["kernel.db", "kernel.db-lock"]


def test_closing_wakes_whoever_waits(path: Path) -> None:
    """A thread that waits for an execution is told that the kernel was closed, and keeps nothing
    open.
    """
    kernel = Kernel(path)
    kernel.register_agent(AGENT)
    lease = start(kernel)
    database = kernel._store().database
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(kernel.wait, lease.execution_id, 20.0) for _ in range(8)]
        wait_until(lambda: database._watch is not None, "the wait having begun")
        kernel.close()
        for future in waiting:
            with pytest.raises((ValueError, StorageError), match="closed"):
                future.result(10)
    assert not database.has_connections


class SlowToClose(Database):
    """A file whose closing stops half-way for a moment."""

    closing = threading.Event()

    def close(self) -> None:
        self.closing.set()
        threading.Event().wait(0.5)
        super().close()


def test_opening_while_another_closes_keeps_its_leases(path: Path) -> None:
    """A thread opens the file while another closes it: a lease of the first is not taken
    for dead.
    """
    store = Store.open(path, SYSTEM, database_class=SlowToClose)
    with ThreadPoolExecutor(1) as pool:
        closing_it = pool.submit(store.close)
        assert SlowToClose.closing.wait(20)
        with Kernel(path) as kernel:
            _, claim = kernel.start(AGENT)
            assert claim is not None
            closing_it.result(20)
            rival = ChildScript(PROGRAMS / "claimer.py", path.parent)
            assert rival.run(db=path, agent=AGENT, looks=1) == {"stolen": 0}
            kernel.agent.complete(claim.lease, "1")


def test_opening_and_closing_all_the_time_drops_no_lease(path: Path) -> None:
    """While threads open and close the file again and again, no live lease is taken for dead."""
    stop = threading.Event()
    child = ChildScript(PROGRAMS / "claimer.py", path.parent)

    def churn() -> int:
        count = 0
        while not stop.is_set():
            with Kernel(path) as kernel:
                _, claim = kernel.start(AGENT)
                assert claim is not None
                kernel.agent.complete(claim.lease, "1")
            count += 1
        return count

    with (
        ThreadPoolExecutor(2) as pool,
        child.start(db=path, agent=AGENT, looks=200) as rival,
    ):
        turns = [pool.submit(churn) for _ in range(2)]
        rival.hears("looked a while", 60)
        stop.set()
        assert all(turn.result(20) for turn in turns)
        assert rival.result() == {"stolen": 0}


def test_a_change_by_another_process_ends_a_wait(path: Path) -> None:
    """Who waits in one process is woken by what another one writes."""
    with Kernel(path) as kernel:
        kernel.register_agent(AGENT)
        execution = kernel.create(AGENT)
        child = ChildScript(PROGRAMS / "completer.py", path.parent)
        with child.start(db=path, execution=execution.id) as other:
            assert kernel.wait(execution.id, timeout=20).output == "from another process"
            other.result()
        check_history(kernel, execution.id)


def test_a_change_by_anybody_is_noticed(path: Path) -> None:
    """A mark is outdated by a write of another connection as well as by one of ours."""
    with Kernel(path) as kernel:
        kernel.register_agent(AGENT)
        mark = kernel.change_mark()
        kernel.create(AGENT)
        assert kernel.change_mark() > mark
        kernel.wait_for_change(mark, 20)  # Returns: it has happened already.
        kernel.wait_for_change(kernel.change_mark(), 0.05)  # The first look finds where it stands.
        mark = kernel.change_mark()
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("UPDATE agents SET registered_at = registered_at + 1")
        wait_until(lambda: kernel.wait_for_change(mark, 1) or kernel.change_mark() > mark, "notice")


def test_every_waiter_is_woken(path: Path) -> None:
    """Many threads wait for many executions; each is woken for its own end."""
    with Kernel(path) as kernel, ThreadPoolExecutor(12) as pool:
        kernel.register_agent(AGENT)
        leases = [start(kernel) for _ in range(12)]
        waiting = [pool.submit(kernel.wait, lease.execution_id, 20.0) for lease in leases]
        for number, lease in enumerate(leases):
            kernel.agent.complete(lease, str(number))
        assert [future.result(20).output for future in waiting] == list(range(12))


@pytest.mark.slow
def test_c28_a_crowd_of_processes_and_threads_shares_a_file(path: Path, tmp_path: Path) -> None:
    """Eight processes of eight threads record 100 steps each, beside a reader of 5 s, a backup and
    a program that holds the write lock for 3 s: nobody hears of a locked database, nothing is lost.
    """
    copy_path = tmp_path / "copy.db"
    crowd = ChildScript(PROGRAMS / "crowd.py", tmp_path, db=path, agent=AGENT, threads=8)
    stranger = ChildScript(PROGRAMS / "stranger.py", tmp_path, db=path)
    with Kernel(path) as kernel, ExitStack() as processes:
        kernel.register_agent(AGENT)
        start(kernel)
        reader = processes.enter_context(stranger.start(begin="BEGIN", seconds=5))
        reader.hears("holds")
        children = [processes.enter_context(crowd.start(steps=100)) for _ in range(8)]
        for child in children:
            child.hears("open", 60)
        kernel.backup(copy_path)
        writer = processes.enter_context(stranger.start(begin="BEGIN IMMEDIATE", seconds=3))
        writer.hears("holds", 60)
        results = [child.result(120) for child in children]
        assert reader.result() == writer.result() == {"changed": False}
        ids = [execution_id for result in results for execution_id in result["executions"]]
        assert len(set(ids)) == 64
        for execution_id in ids:
            steps = kernel.list_steps(execution_id)
            assert sorted(step.result for step in steps) == list(range(100))
            assert len(all_events(kernel, execution_id)) == 4 + 100 * 4 + 1
            assert kernel.get(execution_id).output == 100
            check_history(kernel, execution_id)
    check_file(path)
    check_file(copy_path)
    with Kernel(copy_path) as copy:
        copied = copy.list(limit=200).executions
        assert any(execution.status == "running" for execution in copied)
        for execution in copied:
            check_history(copy, execution.id)


@pytest.mark.slow
def test_c28_a_writer_that_is_not_ours_is_waited_for(path: Path) -> None:
    """Another program holds SQLite's write lock for two seconds: writes take that long, and
    succeed.
    """
    with Kernel(path) as kernel, _foreign(path) as other:
        kernel.register_agent(AGENT)
        lease = start(kernel)
        other.execute("BEGIN IMMEDIATE")
        let_go = threading.Timer(2.0, other.rollback)
        let_go.start()
        with ThreadPoolExecutor(3) as pool:
            written = [
                pool.submit(kernel.create, AGENT),
                pool.submit(kernel.agent.submit, lease, call()),
                pool.submit(kernel.agent.complete_step, lease, "0" * 64, "1"),
            ]
            assert kernel.get(lease.execution_id).status == "running"  # Reads go on.
            assert let_go.is_alive()
            assert written[0].result(20).status == "running"
            assert written[1].result(20).decision == "proceed"
            assert "not found" in str(written[2].exception(20))
        let_go.join()


def test_c28_a_heartbeat_does_not_wait_long_for_a_strange_writer(path: Path) -> None:
    """While another program holds the write lock a heartbeat's fate is unknown within seconds."""
    with Kernel(path) as kernel, _foreign(path) as other, ThreadPoolExecutor(1) as pool:
        kernel.register_agent(AGENT)
        lease = start(kernel)
        other.execute("BEGIN IMMEDIATE")
        assert pool.submit(kernel.agent.renew, [lease]).result(10) == [Renewal.UNKNOWN]
        other.rollback()
        assert kernel.agent.renew([lease]) == [Renewal.ACCEPTED]
