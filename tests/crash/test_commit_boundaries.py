"""A SIGKILL just before and just after every commit of a run."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.children import ChildScript
from support.effect_log import EffectLog

from .promises import INDETERMINATE, Promises

PROGRAM = Path(__file__).parent / "programs" / "commit_boundaries.py"
AGENT = "commit_boundaries.handler"
KEY = "boundaries"
LABELS = {"note", "pay", "outer", "inner", "inner-pay", "fail", "local", "last"}
ONCE = {"pay", "inner-pay", "last"}
AT_ONCE = 2

Boundary = tuple[str, int]


def die_and_resume(folder: Path, *boundaries: Boundary) -> tuple[set[str], dict[str, int]]:
    """Run with a death at each boundary in turn, then to the end.

    The at-most-once effects that were cut down, and how often each effect ran.
    """
    folder.mkdir()
    db, log = folder / "kernel.db", EffectLog(folder / "log")
    script = ChildScript(PROGRAM, folder, db=db, log=log.path)
    promises = Promises(db, log, AGENT, KEY)
    for boundary in boundaries:
        with script.start(die=boundary) as child:
            status = child.returncode()
            assert status in (-signal.SIGKILL, 0), child.errors
        promises.after_a_death()
    script.run(die=None)
    output = promises.at_the_end(LABELS)
    assert {label for label, seen in output.items() if seen == INDETERMINATE} == promises.cut_down
    return promises.cut_down, {label: log.count(label) for label in LABELS}


def commits_of(folder: Path, script: ChildScript) -> int:
    commits: int = script.run(die=None, db=folder / "kernel.db", log=folder / "log")
    return commits


@pytest.mark.slow
def test_a_death_at_any_commit_breaks_no_promise(tmp_path: Path) -> None:
    """Whatever commit a process dies at, just before it or just after: the next process finishes,
    what was recorded does not run again, no at-most-once body runs twice, the file is sound and the
    history explains every step."""
    script = ChildScript(PROGRAM, tmp_path)
    commits = commits_of(tmp_path, script)
    boundaries = [(side, n) for n in range(1, commits + 1) for side in ("before", "after")]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        folders = [tmp_path / f"{side}-{n}" for side, n in boundaries]
        ends = list(pool.map(die_and_resume, folders, boundaries))
    print(f"{len(boundaries)} boundaries of {commits} commits")
    # Each at-most-once effect is open at two boundaries, after its submit and before its outcome.
    for label in ONCE:
        cut = [
            boundary
            for boundary, (cut_down, _) in zip(boundaries, ends, strict=True)
            if label in cut_down
        ]
        assert [side for side, _ in cut] == ["after", "before"]
        assert cut[1][1] == cut[0][1] + 1
    # And a body runs again only where its own outcome was not recorded yet.
    again = {label: sum(runs[label] > 1 for _, runs in ends) for label in LABELS}
    assert again == {"note": 1, "inner": 1, "outer": 1, "fail": 1, "local": 1} | dict.fromkeys(
        ONCE, 0
    )


@pytest.mark.slow
def test_a_second_death_at_any_commit_of_the_resume_breaks_no_promise(tmp_path: Path) -> None:
    """The process that resumes may die as well, at any of its commits."""
    script = ChildScript(PROGRAM, tmp_path)
    commits = commits_of(tmp_path, script)
    middle = ("after", commits // 2)
    resumes = [(side, n) for n in range(1, commits // 2 + 2) for side in ("before", "after")]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(
            pool.map(
                lambda second: die_and_resume(
                    tmp_path / f"{second[0]}-{second[1]}", middle, second
                ),
                resumes,
            )
        )
