"""Agents that are halted, told to stop, or cut off from their kernel, and others that take over."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.effect_log import EffectLog
from support.lossy_line import LossyLine, Sent
from support.waiting import wait_until

from .ledger import account_for
from .processes import AgentProcess, KernelProcess
from .webhooks import send_again

pytestmark = pytest.mark.slow

LEASE_SECONDS = 2


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[KernelProcess]:
    with KernelProcess(tmp_path, "--lease-timeout", str(LEASE_SECONDS)) as kernel:
        yield kernel


@pytest.fixture
def agents(tmp_path: Path, kernel: KernelProcess, logs: Path) -> Iterator[list[AgentProcess]]:
    """Two processes of one agent, one handler at a time, of which the first is registered."""
    given: dict[str, Any] = {"kernel": kernel.url, "logs": logs, "workers": 1, "grace": 3.0}
    with (
        AgentProcess("paced_served.py", tmp_path, "paced", **given) as first,
        AgentProcess("paced_served.py", tmp_path, "paced", **given) as second,
    ):
        first.register(kernel)
        yield [first, second]


def create(kernel: KernelProcess, key: str, effects: int, seconds: float) -> str:
    given = {"effects": effects, "seconds": seconds}
    return kernel.client.create("paced", given, idempotency_key=key).id


def labels_of(effects: int) -> set[str]:
    return {f"effect-{n}" for n in range(effects)}


def pids(logs: Path, execution_id: str) -> list[int]:
    """The process of each time that a body ran."""
    return [line.pid for line in EffectLog(logs / execution_id).lines()]


def in_body(agent: AgentProcess, label: str, execution_id: str) -> None:
    agent.running.says(
        lambda said: (
            isinstance(said, dict)
            and said.get("body") == label
            and said["execution"] == execution_id
        ),
        f"the body of {label}",
    )


# -- halted


@pytest.mark.parametrize(
    ("raised", "at_the_end"),
    [("LeaseSuperseded", False), ("Terminated", True)],
    ids=["goes on beside the other", "goes on after the end"],
)
def test_an_agent_that_was_halted_for_longer_than_its_lease_does_nothing_more(
    kernel: KernelProcess,
    agents: list[AgentProcess],
    logs: Path,
    raised: str,
    at_the_end: bool,
) -> None:
    """Halted inside a body, with another execution waiting for the thread; a second process takes
    both over. When the first goes on, its body ends, and nothing else begins there."""
    first, second = agents
    running = create(kernel, "running", 6, 0.3)
    in_body(first, "effect-1", running)
    waiting = create(kernel, "waiting", 6, 0.05)
    wait_until(
        lambda: any(e.type == "dispatch.acked" for e in kernel.client.events(waiting)),
        "the delivery of the one that waits",
    )
    first.stop()
    before = pids(logs, running).count(first.running.pid)
    second.register(kernel)
    in_body(second, "effect-2", running)
    if at_the_end:
        for one in (running, waiting):
            kernel.client.wait(one, timeout=40)
    first.resume()
    for moment in ("raised", "again"):
        told = {moment: raised, "execution": running}
        first.running.says(lambda said, told=told: said == told, "how its attempt ended")
    ended = [kernel.client.wait(one, timeout=40) for one in (running, waiting)]
    # Whatever it had in mind it has done once it has stopped.
    first.running.signal(signal.SIGTERM)
    assert first.running.returncode() == 0, first.running.errors
    assert pids(logs, running).count(first.running.pid) == before
    assert set(pids(logs, waiting)) == {second.running.pid}
    for one in ended:
        account = account_for(kernel.db, logs, one, labels_of(6))
        assert account.attempts > 1
        assert account.cut_down == 0


# -- C6


def test_c6_a_body_of_three_leases_runs_once_though_another_process_waits(
    kernel: KernelProcess, agents: list[AgentProcess], logs: Path
) -> None:
    """Six seconds under leases of two; from the start of the body on, whatever is delivered goes
    to the second process."""
    first, second = agents
    execution = create(kernel, "long", 1, 3 * LEASE_SECONDS)
    in_body(first, "effect-0", execution)
    second.register(kernel)
    ended = kernel.client.wait(execution, timeout=30)
    assert pids(logs, execution) == [first.running.pid]
    assert account_for(kernel.db, logs, ended, labels_of(1)).attempts == 1


def test_c6_without_heartbeats_the_other_process_takes_over_and_the_first_is_refused(
    tmp_path: Path, kernel: KernelProcess, logs: Path
) -> None:
    """The second starts after the lease and does not wait for the first one's body, whose result
    is refused; the next primitive of the first raises."""
    beats: list[float] = []

    def no_beats(sent: Sent) -> tuple[int, bytes] | None:
        if sent.last not in ("heartbeat", "leases"):
            return None
        beats.append(time.monotonic())
        return None if len(beats) == 1 else (502, b"")

    given: dict[str, Any] = {"logs": logs}
    with (
        LossyLine(("127.0.0.1", kernel.port), answers=no_beats) as line,
        AgentProcess("paced_served.py", tmp_path, "paced", kernel=line.url, **given) as first,
        AgentProcess("paced_served.py", tmp_path, "paced", kernel=kernel.url, **given) as second,
    ):
        first.register(kernel)
        execution = create(kernel, "long", 2, 1.5 * LEASE_SECONDS)
        in_body(first, "effect-0", execution)
        second.register(kernel)
        in_body(second, "effect-0", execution)
        assert LEASE_SECONDS - 0.2 < time.monotonic() - beats[0] < 2 * LEASE_SECONDS
        superseded = {"raised": "LeaseSuperseded", "execution": execution}
        first.running.says(lambda said: said == superseded, "that it is superseded")
        [step] = kernel.client.list_steps(execution)
        assert step.status == "executing", "the first one's result was refused"
        again = {"again": "LeaseSuperseded", "execution": execution}
        first.running.says(lambda said: said == again, "that its next primitive raises")
        ended = kernel.client.wait(execution, timeout=30)
        assert pids(logs, execution) == [first.running.pid, *[second.running.pid] * 2]
        assert ended.output["effect-0"] == EffectLog(logs / execution).lines()[1].token


# -- C10


def test_c10_sigterm_with_a_long_body_gives_the_lease_to_another_process(
    tmp_path: Path, kernel: KernelProcess, logs: Path
) -> None:
    """With a body of 30 s and a grace of 3 s the process ends within 4 s and begins nothing after
    the signal; within a second of its end another process runs the execution, and no step of it
    was marked failed. What is created meanwhile goes there too."""
    given: dict[str, Any] = {"kernel": kernel.url, "logs": logs, "grace": 3.0}
    with (
        AgentProcess("paced_served.py", tmp_path, "paced", **given) as first,
        AgentProcess("paced_served.py", tmp_path, "paced", **given) as second,
        LossyLine(("127.0.0.1", first.port)) as balancer,
    ):
        first.register(kernel, balancer.url + "/webhook")
        execution = create(kernel, "long", 1, 30)
        in_body(first, "effect-0", execution)
        told = time.monotonic()
        first.running.signal(signal.SIGTERM)
        late = create(kernel, "late", 2, 0.05)
        wait_until(
            lambda: any(e.type == "dispatch.failed" for e in kernel.client.events(late)),
            "the refusal of what is created meanwhile",
        )
        balancer.to = ("127.0.0.1", second.port)
        assert first.running.ends_within(6), first.running.errors
        ended = time.monotonic()
        in_body(second, "effect-0", execution)
        took_over = time.monotonic()
        assert ended - told < 4.0
        assert took_over - ended < 1.0
        [step] = kernel.client.list_steps(execution)
        assert step.status == "executing"
        kinds = [event.type for event in kernel.client.events(execution)]
        assert "step.failed" not in kinds
        kernel.client.wait(late, timeout=20)
        assert set(pids(logs, late)) == {second.running.pid}
        assert pids(logs, execution) == [first.running.pid, second.running.pid]


# -- C35


def test_c35_captured_webhooks_change_nothing(
    tmp_path: Path, kernel: KernelProcess, logs: Path
) -> None:
    """The webhook of an attempt that was killed is sent again to the process that runs the next
    one, and after the end all of them to it and to a process that knows of nothing: the live run
    is not disturbed, and nothing runs."""
    given: dict[str, Any] = {"kernel": kernel.url, "logs": logs}
    with (
        AgentProcess("paced_served.py", tmp_path, "paced", **given) as agent,
        LossyLine(("127.0.0.1", agent.port)) as webhooks,
    ):
        agent.register(kernel, webhooks.url + "/webhook")
        execution = create(kernel, "captured", 6, 0.3)
        in_body(agent, "effect-1", execution)
        agent.kill()
        agent.start()
        agent.wait()
        in_body(agent, "effect-2", execution)
        captured = list(webhooks.sent)
        attempts = attempts_of(kernel, execution)
        for sent in captured * 2:
            assert send_again(sent, agent) == 200
        ended = kernel.client.wait(execution, timeout=20)
        account = account_for(kernel.db, logs, ended, labels_of(6))
        assert account.attempts == attempts
        runs, seq = pids(logs, execution), ended_at(kernel, execution)
        for fresh in (False, True):
            if fresh:
                agent.kill()
                agent.start()
                agent.wait()
            for sent in list(webhooks.sent):
                assert send_again(sent, agent) == 200
        # What was taken up before the signal is finished with when the process has ended.
        agent.running.signal(signal.SIGTERM)
        assert agent.running.returncode() == 0, agent.running.errors
        assert agent.running.said == ["serving"]
        assert (pids(logs, execution), ended_at(kernel, execution)) == (runs, seq)


def attempts_of(kernel: KernelProcess, execution_id: str) -> int:
    """The number of the newest attempt."""
    events = kernel.client.events(execution_id, limit=1000)
    return max(int(event.payload.get("attempt", 0)) for event in events)


def ended_at(kernel: KernelProcess, execution_id: str) -> int:
    """The number of the last event."""
    return kernel.client.events(execution_id, limit=1000)[-1].event_seq
