"""Two hundred random SIGKILLs of agents, of the kernel, and of both at once."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from rebuno_sync.errors import NetworkError
from rebuno_sync.types import Execution

from .ledger import account_for
from .processes import AgentProcess, KernelProcess

KILLS = 200
AGENTS = 2
ALIVE = 8
"""Executions that are under way at any time."""
EFFECTS = 20
LONGEST_PAUSE_SECONDS = 0.35
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
        self.alive: set[str] = set()
        self.ended: dict[str, Execution] = {}

    def create(self) -> str:
        number = self._created
        execution = self.kernel.client.create(
            f"twenty-{number % AGENTS}",
            {"mixed": bool(number % 4)},  # A few are safe to retry in all their effects.
            idempotency_key=f"key-{number}",
        )
        self.alive.add(execution.id)
        self._created += 1
        return execution.id

    def look(self) -> None:
        """Notice what has ended."""
        for one in list(self.alive):
            execution = self.kernel.client.get(one)
            if execution.status.terminal:
                assert execution.status == "completed", execution.failure_reason
                self.ended[one] = execution
                self.alive.discard(one)


class Killer(threading.Thread):
    """Kills at random, and starts again at once, until there were enough kills."""

    def __init__(self, stage: Stage, rng: random.Random) -> None:
        super().__init__(name="killer", daemon=True)
        self._stage = stage
        self._rng = rng
        self.kills: Counter[str] = Counter()
        self.failed: BaseException | None = None
        self.stopped = threading.Event()

    @property
    def enough(self) -> bool:
        return self.kills.total() >= KILLS

    def end(self) -> None:
        """Kill and start nothing more."""
        self.stopped.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        try:
            while not (self.enough or self.stopped.is_set()):
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
    with stage.kernel, ExitStack() as started:
        for agent in stage.agents:
            started.enter_context(agent).register(stage.kernel)
        started.callback(killer.end)  # Before what it might start again is killed for good.
        safe_output = stage.kernel.client.wait(stage.create(), timeout=20).output
        labels = set(safe_output)
        assert len(labels) == EFFECTS
        stage.look()
        began = time.monotonic()
        killer.start()
        while not killer.enough or stage.alive:
            assert killer.failed is None, killer.failed
            assert time.monotonic() - began < LIMIT_SECONDS, f"{len(stage.alive)} still alive"
            # The kernel may be killed again and again before it has answered.
            with suppress(NetworkError):
                while len(stage.alive) < ALIVE and not killer.enough:
                    stage.create()
                stage.look()
            threading.Event().wait(0.1)
        seconds = time.monotonic() - began
    cut_down = repeats = attempts = 0
    for execution in stage.ended.values():
        account = account_for(stage.kernel.db, stage.logs, execution, labels)
        if not execution.input["mixed"]:
            assert account.output == safe_output
            assert not account.cut_down
        cut_down += account.cut_down
        repeats += account.repeats
        attempts += account.attempts
    print(
        f"{dict(killer.kills)} kills, {len(stage.ended)} executions in {attempts} attempts and"
        f" {seconds:.0f} s; {cut_down} at-most-once effects cut down, {repeats} safe ones repeated"
    )
    assert killer.kills.total() >= KILLS
    assert min(killer.kills[what] for what in ("agent", "kernel", "both")) > 0
    assert cut_down > 0
    assert repeats > 0
