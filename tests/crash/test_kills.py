"""Two hundred random SIGKILLs: every class of effect keeps its own promise."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.children import ChildScript
from support.effect_log import EffectLog

from .promises import Promises

PROGRAM = Path(__file__).parent / "programs" / "twenty_effects.py"
AGENT = "twenty_effects.handler"
KILLS = 200
AT_ONCE = 3
EFFECTS = 20
REPLAY_SHARE = 0.2
"""What replaying takes at most, as a share of the time of an uninterrupted run."""


class Killer:
    """Kills one execution after another at random moments until there were enough kills."""

    def __init__(
        self, folder: Path, seed: int, whole_seconds: float, safe_output: dict[str, str]
    ) -> None:
        self.folder = folder
        self.seed = seed
        self.safe_output = safe_output
        self.kills = self.executions = self.cut_down = self.repeats = 0
        self._guard = threading.Lock()
        self._whole_seconds = whole_seconds

    def loop(self, number: int, *, mixed: bool) -> None:
        rng = random.Random(f"{self.seed}-{number}")
        while self.kills < KILLS:
            with self._guard:
                self.executions += 1
                folder = self.folder / f"execution-{self.executions}"
            folder.mkdir()
            self._one_execution(folder, rng, mixed=mixed)

    def _one_execution(self, folder: Path, rng: random.Random, *, mixed: bool) -> None:
        db, log = folder / "kernel.db", EffectLog(folder / "log")
        script = ChildScript(PROGRAM, folder, db=db, log=log.path, mixed=mixed)
        promises = Promises(db, log, AGENT, "twenty")
        while not self._cut_short(script, rng, EFFECTS - promises.recorded):
            promises.after_a_death()
        output = promises.at_the_end(set(self.safe_output))
        with self._guard:
            self.cut_down += len(promises.cut_down)
            self.repeats += len(log.lines()) - EFFECTS + len(promises.cut_down)
        if not mixed:
            assert output == self.safe_output

    def _cut_short(self, script: ChildScript, rng: random.Random, effects_left: int) -> bool:
        """Start a process and kill it at a random moment, unless it has ended before; whether it
        had."""
        with script.start() as child:
            # Now and then in the opening of the kernel, else within what is left to do.
            if rng.random() < 0.1:
                child.hears("begun")
                seconds = 0.05
            else:
                # It does not run when it was killed just after its completion.
                child.says(lambda said: said in ("running", "ended"), "running or ended")
                seconds = self._whole_seconds * (REPLAY_SHARE + effects_left / EFFECTS)
            child.ends_within(rng.uniform(0, seconds))
            child.kill()
            if "ended" in child.said:
                return True
            assert child.process.returncode == -signal.SIGKILL, child.errors
            with self._guard:
                self.kills += 1
            return False


def uninterrupted(folder: Path) -> tuple[float, dict[str, str]]:
    """Seconds that the handler takes, and its output."""
    folder.mkdir()
    db, log = folder / "kernel.db", EffectLog(folder / "log")
    script = ChildScript(PROGRAM, folder, db=db, log=log.path, mixed=False)
    with script.start() as child:
        child.hears("running")
        started = time.monotonic()
        child.hears("ended")
        seconds = time.monotonic() - started
        child.result()
    labels = {line.label for line in log.lines()}
    assert len(labels) == len(log.lines()) == EFFECTS
    return seconds, Promises(db, log, AGENT, "twenty").at_the_end(labels)


@pytest.mark.slow
def test_two_hundred_sigkills_break_no_promise_of_any_effect(tmp_path: Path) -> None:
    """Killed at 200 random moments and resumed: recorded effects do not run again, none is missing,
    no at-most-once body runs twice, one that was cut down reports that its outcome is unknown, and
    with safe effects only the handler returns what it returns uninterrupted."""
    seed = int(os.environ.get("CRASH_SEED") or random.SystemRandom().randrange(2**32))
    print(f"CRASH_SEED={seed}")
    seconds, output = uninterrupted(tmp_path / "uninterrupted")
    killer = Killer(tmp_path, seed, seconds, output)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        loops = [pool.submit(killer.loop, n, mixed=n != 0) for n in range(AT_ONCE)]
    for loop in loops:
        loop.result()
    print(
        f"{killer.kills} kills of {killer.executions} executions; {killer.cut_down} at-most-once"
        f" effects cut down, {killer.repeats} safe ones repeated"
    )
    assert killer.kills >= KILLS
    assert killer.cut_down > 0
    assert killer.repeats > 0
