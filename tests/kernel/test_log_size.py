"""The write-ahead log is kept short."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from support.children import ChildScript
from support.histories import check_file

from rebuno_sync.kernel import Kernel

from .moves import AGENT, call, start

PROGRAMS = Path(__file__).parent / "programs"
LARGEST_LOG_BYTES = 24 * 2**20


def _log_bytes(path: Path) -> int:
    return path.with_name(path.name + "-wal").stat().st_size


@pytest.mark.slow
def test_the_log_stays_short_over_many_commits(path: Path) -> None:
    """Ten thousand commits, with a reader beside them, do not let the log grow beyond its limit."""
    with Kernel(path) as kernel, ThreadPoolExecutor(2) as pool:
        kernel.register_agent(AGENT)
        lease = start(kernel)
        stop = False

        def read() -> int:
            count = 0
            while not stop:
                kernel.events(lease.execution_id, limit=10)
                count += 1
            return count

        reading = pool.submit(read)
        largest = 0
        for number in range(10_000):
            kernel.agent.submit(lease, call("work", number))
            if number % 500 == 0:
                largest = max(largest, _log_bytes(path))
        stop = True
        assert reading.result(20) > 0
        assert max(largest, _log_bytes(path)) < LARGEST_LOG_BYTES
        assert path.stat().st_size > 1_000_000  # What was recorded is in the file itself.
    check_file(path)


@pytest.mark.slow
def test_the_log_stays_short_when_records_are_large(path: Path) -> None:
    """Few commits of a megabyte each do not let the log grow beyond its limit either."""
    with Kernel(path) as kernel:
        kernel.register_agent(AGENT)
        lease = start(kernel)
        for number in range(60):
            kernel.agent.submit(lease, call("big", "x" * 1_000_000 + str(number)))
            assert _log_bytes(path) < LARGEST_LOG_BYTES


@pytest.mark.slow
def test_the_log_is_short_again_after_a_long_reader(path: Path) -> None:
    """A program that reads as of one instant keeps the log while it does. Soon after its end the
    log is short again, without another megabyte being written."""
    with Kernel(path) as kernel, closing(sqlite3.connect(path, isolation_level=None)) as reader:
        kernel.register_agent(AGENT)
        lease = start(kernel)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM steps").fetchall()
        for number in range(42):
            kernel.agent.submit(lease, call("big", "x" * 1_000_000 + str(number)))
        assert _log_bytes(path) > LARGEST_LOG_BYTES
        assert reader.execute("SELECT count(*) FROM steps").fetchall() == [(0,)]
        reader.execute("COMMIT")
        for number in range(60):
            kernel.agent.submit(lease, call("small", number))
        assert _log_bytes(path) < LARGEST_LOG_BYTES
    check_file(path)


@pytest.mark.slow
def test_the_log_stays_short_when_processes_come_and_go(path: Path) -> None:
    """Many short processes, each killed at its end, beside one that only watches: the log stays
    short.
    """
    with Kernel(path) as watcher:
        watcher.register_agent(AGENT)
        script = ChildScript(PROGRAMS / "short_life.py", path.parent, db=path, agent=AGENT)
        for _ in range(12):
            with script.start(commits=500) as child:
                child.hears("done", 60)
        assert watcher.list().executions
        assert _log_bytes(path) < LARGEST_LOG_BYTES
