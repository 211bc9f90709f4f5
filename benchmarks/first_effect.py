"""From ``run`` to the start of the first effect's body: create, claim, submit.

    python benchmarks/first_effect.py

The floor is two durable commits of one row each: what creating and claiming must sync.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from pathlib import Path

from ratios import Rival, arguments, compare, timed

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

begun = 0.0


@rebuno.tool
def first() -> None:
    global begun
    begun = time.perf_counter()


def handler() -> None:
    first()


def main() -> None:
    options = arguments(__doc__ or "")
    runs = 3 if options.quick else 50
    with tempfile.TemporaryDirectory(dir=".") as folder:
        db = sqlite3.connect(Path(folder) / "floor.db", isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE rows (n INTEGER PRIMARY KEY, text TEXT)")

        def commits() -> None:
            for _ in range(runs * 2):
                db.execute("INSERT INTO rows (text) VALUES (?)", ("x" * 100,))

        with Kernel(Path(folder) / "kernel.db") as kernel:

            def to_first_effect() -> float:
                total = 0.0
                for _ in range(runs):
                    started = time.perf_counter()
                    rebuno.run(handler, kernel=kernel)
                    total += begun - started
                return total / runs

            compare(
                "create to first effect, in process",
                Rival("floor: two durable commits", lambda: timed(commits, runs)),
                Rival("rebuno_sync.run", to_first_effect),
                turns=1 if options.quick else 5,
            )


if __name__ == "__main__":
    main()
