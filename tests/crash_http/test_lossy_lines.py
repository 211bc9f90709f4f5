"""C33: replies that are lost after the kernel has committed, and a kernel that is away."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.effect_log import EffectLog
from support.lossy_line import LossyLine, Sent
from support.waiting import wait_until

from .ledger import Account, account_for
from .processes import AgentProcess, KernelProcess

pytestmark = pytest.mark.slow

EFFECTS = 20
EXTENSIONS = ("rebuno-extensions",)


def every_tenth() -> Callable[[Sent], bool]:
    """Loses the reply to every tenth request, whatever it asks."""
    guard, seen = threading.Lock(), 0

    def lost(_: Sent) -> bool:
        nonlocal seen
        with guard:
            seen += 1
            return not seen % 10

    return lost


def one_in_ten(seed: int) -> Callable[[Sent], bool]:
    """Loses one reply in ten, at random. Every tenth exactly would, without request ids, end each
    attempt that replays ten effects or more."""
    guard, rng = threading.Lock(), random.Random(seed)

    def lost(_: Sent) -> bool:
        with guard:
            return rng.random() < 0.1

    return lost


def run_many(
    folder: Path,
    executions: int,
    *options: str,
    loses: Callable[[Sent], bool],
    without: tuple[str, ...] = (),
) -> tuple[list[Account], int]:
    """Executions of twenty effects over a line that ``loses`` replies, and what came of them; how
    many were lost."""
    logs = folder / "logs"
    logs.mkdir()
    with (
        KernelProcess(folder, "--max-attempts", "1000", *options) as kernel,
        LossyLine(("127.0.0.1", kernel.port), without=without) as line,
        AgentProcess("twenty_served.py", folder, "lossy", kernel=line.url, logs=logs) as agent,
        LossyLine(("127.0.0.1", agent.port), without=without) as webhooks,
    ):
        agent.register(kernel, webhooks.url + "/webhook")
        client = kernel.client

        def created(number: int) -> str:
            return client.create("lossy", {"mixed": True}, idempotency_key=f"key-{number}").id

        first = client.wait(created(0), timeout=20)
        labels = set(first.output)
        assert len(labels) == EFFECTS
        line.loses = loses
        began = time.monotonic()
        ids = [created(number) for number in range(1, executions)]
        ended = [first, *(client.wait(one, timeout=120) for one in ids)]
        print(f"{executions} executions in {time.monotonic() - began:.0f} s")
        assert not agent.running.errors
    return [account_for(kernel.db, logs, one, labels) for one in ended], line.lost


def test_c33_with_every_tenth_reply_lost_each_effect_is_done_once(tmp_path: Path) -> None:
    """200 executions of 20 effects: none is done twice, none is lost, no attempt is lost, and all
    complete."""
    accounts, lost = run_many(tmp_path, 200, loses=every_tenth())
    print(f"{lost} replies lost, {max(it.attempts for it in accounts)} attempts at most")
    assert lost > 200
    assert {it.attempts for it in accounts} == {1}
    assert {it.repeats for it in accounts} == {0}
    assert {it.cut_down for it in accounts} == {0}


def test_c33_without_any_extension_nothing_is_doubled_or_recorded_wrongly(
    tmp_path: Path,
) -> None:
    """A lost submit costs an attempt and perhaps an at-most-once effect that reports that its
    outcome is unknown, but nothing is done twice and all complete."""
    seed = int(os.environ.get("CRASH_SEED") or random.SystemRandom().randrange(2**32))
    print(f"CRASH_SEED={seed}")
    accounts, lost = run_many(
        tmp_path, 20, "--lease-timeout", "0.7", loses=one_in_ten(seed), without=EXTENSIONS
    )
    print(
        f"{lost} replies lost, {sum(it.attempts for it in accounts)} attempts,"
        f" {sum(it.cut_down for it in accounts)} at-most-once effects of unknown outcome"
    )
    assert lost > 100
    assert {it.repeats for it in accounts} == {0}


def test_c33_a_handler_goes_on_when_its_kernel_was_away_for_five_seconds(tmp_path: Path) -> None:
    """Killed in the middle of a run, and started again on the same file and address: no step is
    done twice, no attempt is lost, and what was under way in the handler is recorded."""
    logs = tmp_path / "logs"
    logs.mkdir()
    labels = {f"effect-{n}" for n in range(EFFECTS)}
    with (
        KernelProcess(tmp_path) as kernel,
        AgentProcess("paced_served.py", tmp_path, "paced", kernel=kernel.url, logs=logs) as agent,
    ):
        agent.register(kernel)
        inputs = [{"effects": EFFECTS, "seconds": seconds} for seconds in (0.05, 0.06, 0.25)]
        ids = [
            kernel.client.create("paced", given, idempotency_key=f"key-{n}").id
            for n, given in enumerate(inputs)
        ]
        for one in ids[:2]:
            log = EffectLog(logs / one)
            wait_until(lambda log=log: len(log.lines()) >= EFFECTS // 2, "half of it")
        kernel.kill()
        threading.Event().wait(5.0)
        kernel.start()
        kernel.wait()
        ended = [kernel.client.wait(one, timeout=30) for one in ids]
    for one in ended:
        account = account_for(kernel.db, logs, one, labels)
        assert account[1:] == (0, 0, 1)
