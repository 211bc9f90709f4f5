"""Who owns a lease, and what happens to it when its owner dies, is interrupted, or only looks
alive."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support.children import ChildScript
from support.effect_log import EffectLog
from support.histories import check_file, check_history

from rebuno_sync.kernel import Kernel

PROGRAMS = Path(__file__).parent / "programs"
OUTPUT = ["first", "held", "last"]
STORM_EFFECTS = 60
STORM_SECONDS = 25.0
AT_ONCE_SECONDS = 2.0
"""Far below the lease of 120 s; most of it is the start of an interpreter."""


@pytest.fixture
def log(tmp_path: Path) -> EffectLog:
    return EffectLog(tmp_path / "log")


@pytest.fixture
def script(tmp_path: Path, log: EffectLog) -> ChildScript:
    # Python 3.12 warns of every fork in a process with threads; forks are what is tried here.
    options = ("-W", "error", "-W", "ignore::DeprecationWarning")
    db = tmp_path / "kernel.db"
    return ChildScript(
        PROGRAMS / "owners.py", tmp_path, options=options, db=db, log=log.path, act=""
    )


def status_of_step(db: Path, target: str) -> str:
    with Kernel(db) as kernel:
        (execution,) = kernel.list(agent_id="owners.handler").executions
        check_history(kernel, execution.id)
        (step,) = [s for s in kernel.list_steps(execution.id) if s.target == target]
        return step.status


def is_child(said: Any) -> bool:
    return isinstance(said, dict) and "child" in said


def run_at_once(script: ChildScript) -> None:
    """Another process takes the execution over at once and finishes it."""
    started = time.monotonic()
    assert script.run()["output"] == OUTPUT
    took = time.monotonic() - started
    print(f"took over and finished in {took:.2f} s")
    assert took < AT_ONCE_SECONDS


@pytest.mark.parametrize("act", ["fork and hold", "fork, use and hold"])
def test_c37_a_child_that_lives_on_does_not_keep_the_lease_of_a_killed_owner(
    script: ChildScript, log: EffectLog, act: str
) -> None:
    """The owner is killed while a child that it forked lives on, idle or using the kernel itself:
    the next process takes over at once."""
    with script.start(act=act) as owner:
        forked = owner.says(is_child, "the child's pid")["child"]
        try:
            owner.kill()
            os.kill(forked, 0)  # The child lives.
            run_at_once(script)
        finally:
            os.kill(forked, signal.SIGKILL)
    assert [log.count(label) for label in OUTPUT] == [1, 2, 1]


def test_c37_a_killed_owner_is_noticed_by_a_process_that_already_waits(
    script: ChildScript, log: EffectLog
) -> None:
    """A process that waits for a lease takes it within two seconds of its owner's death."""
    with script.start(act="hold") as owner:
        owner.hears("holding")
        with script.start() as waiter:
            waiter.hears("begun")
            assert not waiter.ends_within(0.5)
            killed_at = time.monotonic()
            owner.kill()
            done = waiter.result()
    print(f"done {done['at'] - killed_at:.2f} s after the death")
    assert done["output"] == OUTPUT
    assert done["at"] - killed_at < AT_ONCE_SECONDS
    assert [log.count(label) for label in OUTPUT] == [1, 2, 1]


def test_c37_after_a_reboot_nobody_is_taken_for_an_old_owner(script: ChildScript) -> None:
    """Under a new boot id the lease is free, even when a process with the owner's pid, and its
    lock, seems to be alive; under the same boot id it is held."""
    with script.start(act="claim and hold", boot="monday") as owner:
        owner.hears(1)
        assert script.run(act="claim", boot="monday") is None
        assert script.run(act="claim", boot="tuesday") == 2


def test_c37_a_live_lease_of_another_process_is_waited_for(
    script: ChildScript, log: EffectLog, tmp_path: Path
) -> None:
    """A run that meets a live lease waits for its result, also for longer than the lease lasts
    without heartbeats, and runs nothing itself."""
    go = tmp_path / "go"
    with script.start(act="hold until told", go=go, lease_timeout=1.0) as owner:
        owner.hears("holding")
        with script.start(lease_timeout=1.0) as waiter:
            waiter.hears("begun")
            assert not waiter.ends_within(2.5)
            go.touch()
            assert owner.result()["output"] == OUTPUT
            assert waiter.result()["output"] == OUTPUT
    assert [log.count(label) for label in OUTPUT] == [1, 1, 1]


@pytest.mark.slow
def test_c39_a_long_run_survives_fifty_restarts(
    script: ChildScript, log: EffectLog, tmp_path: Path
) -> None:
    """Killed fifty times, each time after a new effect, with the default of five attempts: it
    completes, and no effect ran twice."""
    effects = 51
    for restart in range(50):
        with script.start(effects=effects, die_at=restart + 1) as child:
            assert child.returncode() == -signal.SIGKILL, child.errors
    done = script.run(effects=effects)
    assert done["output"] == [f"effect-{number}" for number in range(effects)]
    assert [log.count(label) for label in done["output"]] == [1] * effects
    with Kernel(tmp_path / "kernel.db") as kernel:
        (execution,) = kernel.list().executions
        check_history(kernel, execution.id)
    check_file(tmp_path / "kernel.db")


def test_c39_a_run_that_dies_five_times_without_progress_is_failed(
    script: ChildScript, log: EffectLog
) -> None:
    """Five deaths in a row with nothing new recorded end the execution as ``dispatch_exhausted``;
    its handler does not run a sixth time."""
    for _ in range(5):
        with script.start(act="hold", effects=1, die_at=0) as child:
            assert child.returncode() == -signal.SIGKILL, child.errors
    assert script.run(effects=1) == {"failed": "dispatch_exhausted"}
    assert script.run(effects=1) == {"failed": "dispatch_exhausted"}
    assert log.lines() == []


def test_c39_progress_gives_a_run_its_five_attempts_back(
    script: ChildScript, log: EffectLog
) -> None:
    """Deaths count from the last new effect: the one that records it does not."""
    for _ in range(1 + 5):
        with script.start(effects=2, die_at=1) as child:
            assert child.returncode() == -signal.SIGKILL, child.errors
    assert script.run(effects=2) == {"failed": "dispatch_exhausted"}
    assert [line.label for line in log.lines()] == ["effect-0"]


def interrupt(script: ChildScript) -> None:
    with script.start(act="hold", max_attempts=2) as child:
        child.hears("holding")
        child.signal(signal.SIGINT)
        assert child.returncode(5.0) == -signal.SIGINT
        assert "\nKeyboardInterrupt\n" in child.errors


def test_an_interrupt_gives_the_lease_back_and_leaves_the_step_open(
    script: ChildScript, log: EffectLog, tmp_path: Path
) -> None:
    """Ctrl-C ends the process with ``KeyboardInterrupt``; the step that it struck stays executing,
    and the next process takes over at once."""
    interrupt(script)
    assert status_of_step(tmp_path / "kernel.db", "hold") == "executing"
    run_at_once(script)
    assert [log.count(label) for label in OUTPUT] == [1, 2, 1]


def test_an_interrupt_is_no_strike(script: ChildScript, log: EffectLog) -> None:
    """Interrupted more often than a run may die, it still goes on."""
    for _ in range(4):
        interrupt(script)
    assert script.run(max_attempts=2)["output"] == OUTPUT
    assert [log.count(label) for label in OUTPUT] == [1, 5, 1]


@pytest.mark.slow
def test_a_storm_of_interrupts_neither_hangs_a_process_nor_repeats_what_is_recorded(
    tmp_path: Path, log: EffectLog
) -> None:
    """A main thread that is interrupted at random moments and runs again each time gets there: no
    hang, no recorded effect runs again, and executions of other threads go on meanwhile."""
    seed = int(os.environ.get("CRASH_SEED") or random.SystemRandom().randrange(2**32))
    print(f"CRASH_SEED={seed}")
    rng = random.Random(seed)
    db = tmp_path / "kernel.db"
    program = PROGRAMS / "interrupt_storm.py"
    script = ChildScript(program, tmp_path, db=db, log=log.path, effects=STORM_EFFECTS)
    pause = threading.Event()
    limit = time.monotonic() + STORM_SECONDS
    with script.start() as child:
        child.hears("storm me")
        signals = 0
        while child.process.poll() is None and time.monotonic() < limit:
            child.signal(signal.SIGINT)
            signals += 1
            pause.wait(rng.choice((0.0005, 0.002, 0.01, 0.03, 0.06)) * rng.random())
            if any(isinstance(said, dict) for said in child.said):
                break
        told = child.result(60.0)
    print(f"{signals} interrupts sent, {told['interrupts']} caught, calm executions {told['calm']}")
    assert signals > 100
    assert min(told["calm"]) > 20
    with Kernel(db) as kernel:
        (execution,) = kernel.list(agent_id="interrupt_storm.stormy").executions
        assert execution.output == STORM_EFFECTS
        check_history(kernel, execution.id)
        steps = kernel.list_steps(execution.id)
        assert len(steps) == 4 * STORM_EFFECTS
        for step in steps:
            assert step.completed_at is not None
            for line in log.of(step.args["label"]):
                assert line.at <= step.completed_at.timestamp() * 1e6 + 1
        assert len(kernel.list(status="completed", limit=200).executions) > 20
        assert kernel.list(status="running").executions == []
    check_file(db)


@pytest.mark.slow
def test_one_ctrl_c_at_any_instant_hangs_nothing(tmp_path: Path) -> None:
    """It may strike just after a write was decided: the run ends, and the next one goes on."""
    effects = 250
    script = ChildScript(
        PROGRAMS / "one_interrupt.py", tmp_path, db=tmp_path / "kernel.db", effects=effects
    )
    instants = random.Random(5)
    for n in range(20):
        with script.start(key=f"k-{n}") as child:
            child.hears("ready")
            threading.Event().wait(instants.uniform(0, 0.15))
            child.signal(signal.SIGINT)
            assert child.result(20) == {"got": sum(range(effects))}
