"""Replaying recorded steps, by how many an execution has.

    python benchmarks/replay.py

The floor reads one row by its primary key and decodes its JSON. The runs are interrupted for the
purpose: the handler raises KeyboardInterrupt after the last step, which gives the lease back and
leaves the execution running.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from ratios import Rival, arguments, compare, timed

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel


@rebuno.tool
def note(number: int) -> dict[str, int]:
    return {"number": number}


class Clocked:
    """A handler that stops after its steps, and says how long they took."""

    seconds = 0.0

    def __call__(self, steps: int) -> int:
        started = time.perf_counter()
        for number in range(steps):
            note(number)
        self.seconds = time.perf_counter() - started
        raise KeyboardInterrupt


def again(handler: Clocked, steps: int, kernel: Kernel) -> float:
    with suppress(KeyboardInterrupt):
        rebuno.run(handler, {"steps": steps}, key=f"{steps}", agent="replay", kernel=kernel)
    return handler.seconds / steps


def main() -> None:
    options = arguments(__doc__ or "")
    sizes = (20,) if options.quick else (100, 1_000, 10_000)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        floor = sqlite3.connect(Path(folder) / "floor.db", isolation_level=None)
        floor.execute("CREATE TABLE steps (step_id TEXT PRIMARY KEY, result TEXT)")
        rows = [(f"{number:064x}", '{"number":7}') for number in range(10_000)]
        floor.execute("BEGIN")
        floor.executemany("INSERT INTO steps VALUES (?, ?)", rows)
        floor.execute("COMMIT")

        def read(steps: int) -> None:
            for step_id, _ in rows[:steps]:
                found = floor.execute("SELECT result FROM steps WHERE step_id = ?", (step_id,))
                json.loads(found.fetchone()[0])

        with Kernel(Path(folder) / "kernel.db", max_attempts=1000) as kernel:
            for steps in sizes:
                handler = Clocked()
                again(handler, steps, kernel)
                compare(
                    f"replaying each of {steps} recorded steps",
                    Rival(
                        "floor: read a row, decode it",
                        lambda steps=steps: timed(lambda: read(steps), steps),
                    ),
                    Rival(
                        "rebuno_sync.tool, replayed",
                        lambda handler=handler, steps=steps: again(handler, steps, kernel),
                    ),
                    turns=1 if options.quick else 5,
                )


if __name__ == "__main__":
    main()
