"""Two hundred random SIGKILLs of agents, of the kernel, and of both at once."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from crash.promises import INDETERMINATE, Promises
from support.effect_log import EffectLog

from rebuno_sync.errors import NetworkError
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import Event

from .processes import AgentProcess, KernelProcess

KILLS = 200
AGENTS = 2
ALIVE = 8
"""Executions that are under way at any time."""
EFFECTS = 20
LONGEST_PAUSE_SECONDS = 0.5
LIMIT_SECONDS = 240.0


class Stage:
    """One kernel, its agents, and executions that are created as others complete."""

    def __init__(self, folder: Path) -> None:
        self.logs = folder / "logs"
        self.logs.mkdir()
        self.kernel = KernelProcess(folder, "--lease-timeout", "1", "--max-attempts", "1000")
        self.agents = [
            AgentProcess(
                "twenty_served.py", folder, f"twenty-{n}", kernel=self.kernel.url, logs=self.logs
            )
            for n in range(AGENTS)
        ]
        self._created = 0
        self.keys: dict[str, tuple[str, str, bool]] = {}
        """Id of an execution -> its agent, its key, and whether its effects are of every sort."""
        self.alive: set[str] = set()

    def create(self, *, mixed: bool = True) -> str:
        number = self._created
        agent, key = f"twenty-{number % AGENTS}", f"key-{number}"
        execution = self.kernel.client.create(agent, {"mixed": mixed}, idempotency_key=key)
        self.keys[execution.id] = agent, key, mixed
        self.alive.add(execution.id)
        self._created += 1
        return execution.id

    def look(self) -> None:
        """Notice what has ended."""
        for one in list(self.alive):
            execution = self.kernel.client.get(one)
            if execution.status.terminal:
                assert execution.status == "completed", execution.failure_reason
                self.alive.discard(one)

    def log(self, execution_id: str) -> EffectLog:
        return EffectLog(self.logs / execution_id)

    def promises(self, execution_id: str) -> Promises:
        agent, key, _ = self.keys[execution_id]
        return Promises(self.kernel.db, self.log(execution_id), agent, key, by_webhook=True)


class Killer(threading.Thread):
    """Kills at random, and starts again at once, until there were enough kills."""

    def __init__(self, stage: Stage, rng: random.Random) -> None:
        super().__init__(name="killer", daemon=True)
        self._stage = stage
        self._rng = rng
        self.kills: Counter[str] = Counter()
        self.failed: BaseException | None = None

    @property
    def enough(self) -> bool:
        return self.kills.total() >= KILLS

    def run(self) -> None:
        try:
            while not self.enough:
                self._kill_once()
        except BaseException as error:
            self.failed = error

    def _kill_once(self) -> None:
        rng, kernel = self._rng, self._stage.kernel
        agent = rng.choice(self._stage.agents)
        what, victims = rng.choices(
            [("agent", [agent]), ("kernel", [kernel]), ("both", [kernel, agent])], [5, 2, 2]
        )[0]
        if rng.random() > 0.1:  # Else it may be struck while it starts.
            for victim in victims:
                victim.wait()
        threading.Event().wait(rng.uniform(0, LONGEST_PAUSE_SECONDS))
        for victim in victims:
            victim.kill()
            self.kills[what] += 1
        for victim in victims:
            victim.start()


def cut_down_by(events: list[Event], step_id: str) -> bool:
    """Whether a step's outcome became unknown as it must: started in one attempt, failed in a
    later one."""
    [started] = [e.event_seq for e in events if e.type == "step.started" and _of(e) == step_id]
    [failed] = [e.event_seq for e in events if e.type == "step.failed" and _of(e) == step_id]
    return started < failed


def _of(event: Event) -> str:
    return str(event.payload.get("step_id", ""))


def check(stage: Stage, execution_id: str, labels: set[str]) -> tuple[dict[str, str], int, int]:
    """Assert every promise; the output, and how many effects were cut down and repeated."""
    promises = stage.promises(execution_id)
    with Kernel(stage.kernel.db) as kernel:
        steps = kernel.list_steps(execution_id)
    for step in steps:
        if step.error and step.error.get("reason") == INDETERMINATE:
            assert step.idempotency == "at_most_once"
            assert step.attempt is not None
            promises.cut_down.add(step.args["label"])
    output = promises.at_the_end(labels)
    log = stage.log(execution_id)
    runs = Counter(line.label for line in log.lines())
    repeats = sum(n - 1 for n in runs.values())
    return output, len(promises.cut_down), repeats


@pytest.mark.slow
def test_two_hundred_sigkills_of_agents_and_kernel_break_no_promise(tmp_path: Path) -> None:
    """Killed at 200 random moments while executions are under way, and started again at the same
    addresses: all complete, recorded effects do not run again, none is missing, no at-most-once
    body runs twice, one that was cut down reports that its outcome is unknown, and with safe
    effects only a handler returns what it returns uninterrupted."""
    seed = int(os.environ.get("CRASH_SEED") or random.SystemRandom().randrange(2**32))
    print(f"CRASH_SEED={seed}")
    stage = Stage(tmp_path)
    killer = Killer(stage, random.Random(seed))
    try:
        stage.kernel.__enter__()
        for agent in stage.agents:
            agent.__enter__()
            agent.register(stage.kernel)
        whole = stage.create(mixed=False)
        safe_output = stage.kernel.client.wait(whole, timeout=20).output
        labels = set(safe_output)
        assert len(labels) == len(stage.log(whole).lines()) == EFFECTS
        stage.alive.clear()
        began = time.monotonic()
        killer.start()
        while not killer.enough or stage.alive:
            assert killer.failed is None, killer.failed
            assert time.monotonic() - began < LIMIT_SECONDS, f"{len(stage.alive)} still alive"
            # The kernel may be killed again and again before it has answered.
            with suppress(NetworkError):
                while len(stage.alive) < ALIVE and not killer.enough:
                    stage.create(mixed=bool(len(stage.keys) % 4))
                stage.look()
            threading.Event().wait(0.1)
        seconds = time.monotonic() - began
        killer.join()
    finally:
        for agent in stage.agents:
            agent.kill()
        stage.kernel.client.close()
        stage.kernel.kill()
    cut_down = repeats = 0
    for execution_id, (_, _, mixed) in stage.keys.items():
        output, cut, again = check(stage, execution_id, labels)
        if not mixed:
            assert output == safe_output
            assert not cut
        cut_down += cut
        repeats += again
    print(
        f"{dict(killer.kills)} kills, {len(stage.keys)} executions in {seconds:.0f} s;"
        f" {cut_down} at-most-once effects cut down, {repeats} safe ones repeated"
    )
    assert killer.kills.total() >= KILLS
    assert min(killer.kills[what] for what in ("agent", "kernel", "both")) > 0
    assert cut_down > 0
    assert repeats > 0
