"""Thousands of executions in one busy process, of which many come to harm."""

from __future__ import annotations

import json
import os
import sqlite3
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.children import ChildScript
from support.effect_log import EffectLog
from support.histories import check_file

from .programs.courses import FATES, course

PROGRAMS = Path(__file__).parent / "programs"
SCALE = float(os.environ.get("REBUNO_SOAK") or 1)
EXECUTIONS = int(10_000 * SCALE)
THREADS = 64
SEED = 20_260_301

MOST_MEGABYTES_MORE = 24.0
"""Arenas of 64 threads come and go; what is kept for each execution would show."""
MOST_BLOCKS_MORE = 20_000
"""Of Python's memory: three for each execution after the first ones."""


@contextmanager
def told_with_the_seed() -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"seed {SEED}, {EXECUTIONS} executions")
        raise


@pytest.mark.slow
def test_ten_thousand_executions_in_64_threads_leave_nothing_behind(tmp_path: Path) -> None:
    """With random cancels, forks and lease losses: no thread is leaked, no step is left open, no
    step has two results, nothing that happens once has happened twice, and memory is flat."""
    db, answers, log = (tmp_path / name for name in ("kernel.db", "answers", "effects"))
    # 3.12 warns of threads at a fork.
    options = ("-W", "error", "-W", "ignore::DeprecationWarning")
    script = ChildScript(
        PROGRAMS / "many_executions.py", tmp_path, options=options, db=db, answers=answers, log=log
    )
    with told_with_the_seed():
        said = script.run(
            seed=SEED, executions=EXECUTIONS, threads=THREADS, seconds=60 + 240 * SCALE
        )
        assert said["wrong"] == []
        assert said["threads"] == ["MainThread"]
        check_memory(said["memory"])
        ended = [json.loads(line) for line in answers.read_text().splitlines()]
        assert sorted(number for number, _, _ in ended) == list(range(EXECUTIONS))
        check_file(db)
        check_records(db, ended)
        check_effects(EffectLog(log), ended)


def check_memory(samples: list[tuple[float, int]]) -> None:
    """What the second half of them holds is what the first half did, once it was under way."""
    for at, most in ((0, MOST_MEGABYTES_MORE), (1, MOST_BLOCKS_MORE)):
        values = [sample[at] for sample in samples]
        early, late = values[len(values) // 4 : len(values) // 2], values[-len(values) // 4 :]
        assert statistics.median(late) - statistics.median(early) < most, values


def check_records(db: Path, ended: list[list[Any]]) -> None:
    """The file, read past the kernel: all has ended, once, as the callers were told."""
    with closing(sqlite3.connect(db)) as file:
        rows = file.execute("SELECT idempotency_key, status, output FROM executions").fetchall()
        recorded = {int(key): (status, json.loads(text or "null")) for key, status, text in rows}
        assert recorded == {number: (status, output) for number, status, output in ended}
        assert count(file, "steps WHERE status NOT IN ('succeeded', 'failed', 'cancelled')") == 0
        assert count(file, "dispatches WHERE status IN ('pending', 'in_flight', 'failed')") == 0
        ends = "('step.succeeded', 'step.failed', 'step.denied', 'step.cancelled')"
        repeated = file.execute(
            f"SELECT execution, step, count(*) FROM events WHERE type IN {ends}"
            " GROUP BY execution, step HAVING count(*) != 1"
        )
        assert repeated.fetchall() == []
        assert count(file, f"events WHERE type IN {ends}") == count(file, "steps")


def count(file: sqlite3.Connection, of: str) -> int:
    number: int = file.execute(f"SELECT count(*) FROM {of}").fetchone()[0]
    return number


def check_effects(log: EffectLog, ended: list[list[Any]]) -> None:
    """What really happened: once, unless a try failed or an attempt was cut down in it; and what
    was returned is what one of its times gave."""
    tokens: defaultdict[str, list[str]] = defaultdict(list)
    for line in log.lines():
        tokens[line.label].append(line.token)
    runs = Counter({label: len(found) for label, found in tokens.items()})
    fates: Counter[str] = Counter()
    for number, status, output in ended:
        mine = course(SEED, number)
        fates[mine.fate] += 1
        # Only a cancel can keep an execution from completing, and it must when it is waited for.
        assert status == "completed" or mine.fate == "cancelled", number
        assert status == "cancelled" or not (mine.fate == "cancelled" and mine.waits), number
        labels = [f"{number}.{n}" for n in range(4)]
        cut_down = mine.fate in ("lost in a body", "forked and died")
        retried = mine.shape == "retried"
        most = [2 if cut_down else 1, 2 if retried else 1, 1, 1]
        assert [runs[it] <= n for it, n in zip(labels, most, strict=True)] == [True] * 4, number
        # On a busy machine a lease may be lost before the body; a child dies in it.
        assert runs[labels[0]] == 2 or mine.fate != "forked and died", number
        known = {"late", "indeterminate"}.union(*(tokens[label] for label in labels))
        assert known.issuperset(output or ()), number
    assert fates.keys() == FATES.keys(), "some fate has befallen nobody"
    sys.stdout.write(f"{dict(fates)}\n")
