"""An effect in process, against its floor: two durable SQLite commits of the same rows.

    python benchmarks/step.py

Ours records the intent and the outcome of each step, four events with them, and decodes the
result. The floor writes the same rows with bare SQL and nothing else.
"""

from __future__ import annotations

import sqlite3
import tempfile
import threading
from itertools import count
from pathlib import Path

from ratios import Rival, arguments, compare, timed

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

HEX = "0123456789abcdef" * 4
STEPS = """
CREATE TABLE steps (n INTEGER PRIMARY KEY, execution INTEGER, step_id TEXT, kind TEXT, target TEXT,
  args_hash TEXT, occurrence INTEGER, status TEXT, args TEXT, result TEXT,
  UNIQUE (execution, step_id))"""
EVENTS_TABLE = """
CREATE TABLE events (execution INTEGER, seq INTEGER, type TEXT, step INTEGER, occurred_at INTEGER,
  PRIMARY KEY (execution, seq)) WITHOUT ROWID"""
EVENTS = ("step.proposed", "step.allowed", "step.executing")


@rebuno.tool
def note(number: int) -> dict[str, int]:
    return {"number": number}


def many(steps: int) -> int:
    for number in range(steps):
        note(number)
    return steps


class Floor:
    """The rows of a step in our schema's shape, in two FULL commits each, under a lock."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for statement in (
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            "PRAGMA wal_autocheckpoint = 0",
            STEPS,
            EVENTS_TABLE,
        ):
            self._db.execute(statement)
        self._lock = threading.Lock()
        self._executions = count(1)

    def run(self, steps: int) -> None:
        execution, seq = next(self._executions), 0
        for number in range(steps):
            with self._lock:
                self._db.execute("BEGIN IMMEDIATE")
                row = (execution, f"{number:064x}", "tool_call", "note", HEX, 0, "executing", "{}")
                step = self._db.execute(
                    "INSERT INTO steps (execution, step_id, kind, target, args_hash, occurrence,"
                    " status, args) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    row,
                ).lastrowid
                values = [
                    value
                    for offset, kind in enumerate(EVENTS)
                    for value in (execution, seq + offset, kind, step, 0)
                ]
                self._db.execute(
                    "INSERT INTO events VALUES (?, ?, ?, ?, ?), (?, ?, ?, ?, ?), (?, ?, ?, ?, ?)",
                    values,
                )
                self._db.execute("COMMIT")
            with self._lock:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.execute(
                    "UPDATE steps SET status = 'succeeded', result = ? WHERE n = ?", ("{}", step)
                )
                self._db.execute(
                    "INSERT INTO events VALUES (?, ?, ?, ?, ?)",
                    (execution, seq + 3, "step.succeeded", step, 0),
                )
                self._db.execute("COMMIT")
            seq += 4


def in_threads(threads: int, work: object) -> None:
    running = [threading.Thread(target=work) for _ in range(threads)]  # type: ignore[arg-type]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def main() -> None:
    options = arguments(__doc__ or "")
    turns = 1 if options.quick else 7
    with tempfile.TemporaryDirectory(dir=".") as folder:
        floor = Floor(Path(folder) / "floor.db")
        with Kernel(Path(folder) / "kernel.db") as kernel:
            for threads, steps in ((1, 300), (8, 60), (64, 15)):
                if options.quick:
                    steps = 3
                units = threads * steps

                def ours(threads: int = threads, steps: int = steps) -> None:
                    def work() -> None:
                        rebuno.run(many, {"steps": steps}, kernel=kernel)

                    work() if threads == 1 else in_threads(threads, work)

                def bare(threads: int = threads, steps: int = steps) -> None:
                    in_threads(threads, lambda: floor.run(steps))

                compare(
                    f"one step, {threads} thread(s), synchronous FULL",
                    Rival(
                        "floor: two commits of the same rows",
                        lambda bare=bare, units=units: timed(bare, units),
                    ),
                    Rival(
                        "rebuno_sync.tool on the embedded kernel",
                        lambda ours=ours, units=units: timed(ours, units),
                    ),
                    turns=turns,
                )


if __name__ == "__main__":
    main()
