"""Forks of a process that uses a kernel: neither side hangs, nothing is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from support.children import ChildScript
from support.effect_log import EffectLog
from support.histories import check_file, check_history
from support.waiting import wait_until

from rebuno_sync.kernel import Kernel

PROGRAM = Path(__file__).parent / "programs" / "forks.py"
AGENT = "forks.handler"


@pytest.fixture
def log(tmp_path: Path) -> EffectLog:
    return EffectLog(tmp_path / "acknowledged")


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "kernel.db"


@pytest.fixture
def script(tmp_path: Path, db: Path, log: EffectLog) -> ChildScript:
    # Python 3.12 warns of every fork in a process with threads; forks are what is tried here.
    options = ("-W", "error", "-W", "ignore::DeprecationWarning")
    return ChildScript(PROGRAM, tmp_path, options=options, db=db, log=log.path)


def check_all_acknowledged(db: Path, log: EffectLog) -> int:
    """Every execution whose output was returned is in the file, completed; how many there are."""
    labels = [line.label for line in log.lines()]
    assert len(labels) == len(set(labels))
    with Kernel(db) as kernel:
        for label in labels:
            execution = kernel.find(AGENT, label)
            assert execution is not None, f"{label} was lost"
            assert execution.output == label
        check_history(kernel, execution.id)
    check_file(db)
    return len(labels)


@pytest.mark.slow
def test_c4_forks_of_a_busy_process_hang_nobody(
    script: ChildScript, tmp_path: Path, db: Path, log: EffectLog
) -> None:
    """Forked while four threads are inside the kernel, children use the kernel that they inherited,
    one of their own on the same file and one on another file: all of it works, also in the
    parent."""
    forks = 60
    other = tmp_path / "other.db"
    with script.start(act="busy", forks=forks, other=other) as child:
        told = child.result(120.0)
        assert told == {"statuses": [0] * forks, "failures": []}, child.errors
    of_children = [line for line in log.lines() if line.label.startswith("child")]
    assert len(of_children) == 2 * forks
    print(f"{forks} forks among {check_all_acknowledged(db, log)} executions")
    with Kernel(other) as kernel:
        assert len(kernel.list(status="completed", limit=200).executions) == forks


def test_c4_an_effect_in_a_forked_pool_says_what_is_wrong(script: ChildScript, db: Path) -> None:
    """A handler forks a process pool whose workers call a tool: they get ``NoActiveExecution`` that
    names the fork, nothing is recorded for them, and the handler goes on."""
    after, message = script.run(act="pool")
    assert after == "after"
    assert "forked" in message
    with Kernel(db) as kernel:
        (execution,) = kernel.list().executions
        targets = [step.args["label"] for step in kernel.list_steps(execution.id)]
    assert sorted(targets) == ["after", "before"]


@pytest.mark.slow
def test_c4_parent_and_children_run_hundreds_of_executions_on_one_kernel(
    script: ChildScript, db: Path, log: EffectLog
) -> None:
    """A kernel that the parent has used serves four forked children and the parent, a hundred
    executions each at once."""
    with script.start(act="children", executions=100) as child:
        assert child.result(120.0) == [0] * 4, child.errors
    assert check_all_acknowledged(db, log) == 1 + 5 * 100


def test_no_acknowledged_execution_is_lost_when_a_parent_dies_before_its_child(
    script: ChildScript, tmp_path: Path, db: Path, log: EffectLog
) -> None:
    """A process that forked is killed, its child and an unrelated process write on, others open and
    close the file meanwhile: whatever was acknowledged to anyone is there."""
    stop = tmp_path / "stop"

    def written_by(name: str) -> int:
        return sum(line.label.startswith(f"{name}-") for line in log.lines())

    def writes_on(name: str) -> None:
        before = written_by(name)
        wait_until(lambda: written_by(name) >= before + 10, f"ten more executions of {name}")

    with (
        script.start(act="writer", name="unrelated", stop=stop) as unrelated,
        script.start(act="writer with a child", name="parent", stop=stop) as parent,
    ):
        child = parent.says(lambda said: "child" in said, "the child's pid")["child"]
        try:
            for name in ("parent", "parent-child", "unrelated"):
                writes_on(name)
            parent.kill()
            for number in range(3):
                assert script.run(act="short writer", name=f"short-{number}", stop=stop) == "done"
                writes_on("parent-child")
                writes_on("unrelated")
            stop.touch()
            assert unrelated.result() == "stopped"
            wait_until(lambda: not Path(f"/proc/{child}").exists(), "the child's end")
        except BaseException:
            os.kill(child, signal.SIGKILL)
            raise
    print(f"{check_all_acknowledged(db, log)} executions acknowledged")
