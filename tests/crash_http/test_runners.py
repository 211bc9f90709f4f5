"""One webhook that reaches two processes of an agent, or one process twice over its death."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
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

LEASE_SECONDS = 3
EFFECTS = 4
"""The last one is `at_most_once`."""
LABELS = {f"effect-{n}" for n in range(EFFECTS)}


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
def agents(
    tmp_path: Path, kernel: KernelProcess, logs: Path
) -> Iterator[tuple[AgentProcess, AgentProcess]]:
    """Two processes of one agent."""
    given: dict[str, Any] = {"kernel": kernel.url, "logs": logs}
    with ExitStack() as started:
        yield tuple(
            started.enter_context(AgentProcess("paced_served.py", tmp_path, "paced", **given))
            for _ in range(2)
        )  # type: ignore[misc]


def create(kernel: KernelProcess, seconds: float) -> str:
    given = {"effects": EFFECTS, "seconds": seconds}
    return kernel.client.create("paced", given, idempotency_key="once").id


def in_body(logs: Path, execution_id: str, label: str) -> None:
    log = EffectLog(logs / execution_id)
    wait_until(lambda: log.count(label), f"the body of {label}")


def pids(logs: Path, execution_id: str) -> set[int]:
    return {line.pid for line in EffectLog(logs / execution_id).lines()}


@pytest.mark.parametrize("restarted", [False, True], ids=["", "after a restart of the kernel"])
@pytest.mark.parametrize("without", [(), ("rebuno-extensions",)], ids=["whole", "stripped"])
def test_a_captured_webhook_runs_nothing_in_a_second_process(
    kernel: KernelProcess,
    agents: tuple[AgentProcess, AgentProcess],
    logs: Path,
    restarted: bool,
    without: tuple[str, ...],
) -> None:
    """While the attempt runs in the first: the kernel refuses the heartbeat that comes before the
    handler, also when the webhook's header, which is not signed, was taken away."""
    first, second = agents
    with LossyLine(("127.0.0.1", first.port)) as webhooks:
        first.register(kernel, webhooks.url + "/webhook")
        execution = create(kernel, 0.5)
        in_body(logs, execution, "effect-0")
        if restarted:
            kernel.kill()
            kernel.start()
            kernel.wait()
        assert send_again(webhooks.sent[0], second, without) == 200
        ended = kernel.client.wait(execution, timeout=20)
    account = account_for(kernel.db, logs, ended, LABELS)
    assert (account.attempts, account.repeats) == (1, 0)
    assert pids(logs, execution) == {first.running.pid}


def test_a_kernel_that_does_not_name_runner_lets_a_captured_webhook_run_beside(
    kernel: KernelProcess, agents: tuple[AgentProcess, AgentProcess], logs: Path
) -> None:
    """The limit of other kernels, as documented: both processes run the handler under one lease,
    and it ends once."""
    first, second = agents
    hidden = ("rebuno-extensions",)
    with LossyLine(("127.0.0.1", first.port), without=hidden) as webhooks:
        first.register(kernel, webhooks.url + "/webhook")
        execution = create(kernel, 0.5)
        in_body(logs, execution, "effect-0")
        assert send_again(webhooks.sent[0], second, hidden) == 200
        kernel.client.wait(execution, timeout=20)
    assert pids(logs, execution) == {first.running.pid, second.running.pid}
    kinds = [event.type for event in kernel.client.events(execution, limit=1000)]
    assert kinds.count("execution.completed") == 1


@pytest.mark.parametrize("struck", ["effect-1", "effect-3"], ids=["safe", "at most once"])
def test_a_process_that_was_killed_runs_nothing_more_of_the_attempt_when_it_is_back(
    kernel: KernelProcess,
    agents: tuple[AgentProcess, AgentProcess],
    logs: Path,
    struck: str,
) -> None:
    """Killed inside a body and started again, it gets the same webhook again within the lease. The
    next attempt comes when that has run out, replays what was recorded, and repeats the body if
    that may be."""
    agent, _ = agents
    with LossyLine(("127.0.0.1", agent.port)) as webhooks:
        agent.register(kernel, webhooks.url + "/webhook")
        execution = create(kernel, 0.3)
        in_body(logs, execution, struck)
        agent.kill()
        agent.start()
        agent.wait()
        assert send_again(webhooks.sent[0], agent) == 200
        wait_until(lambda: kernel.client.get(execution).status.terminal, "the end")
    log = EffectLog(logs / execution)
    if struck == "effect-1":
        account = account_for(kernel.db, logs, kernel.client.get(execution), LABELS)
        assert (account.attempts, account.repeats) == (2, 1)
        assert log.count(struck) == 2
    else:
        assert [line.label for line in log.lines()] == sorted(LABELS)
        assert "outcome unknown" in kernel.client.get(execution).failure_reason


def test_an_attempt_whose_webhook_answer_was_lost_goes_on(
    kernel: KernelProcess, agents: tuple[AgentProcess, AgentProcess], logs: Path
) -> None:
    """The connection is reset once its first body runs: nothing is delivered again, and nothing
    was not delivered."""
    first, _ = agents

    def once_it_runs(sent: Sent) -> bool:
        in_body(logs, str(sent.headers["rebuno-execution-id"]), "effect-0")
        return True

    with LossyLine(("127.0.0.1", first.port), loses=once_it_runs) as webhooks:
        first.register(kernel, webhooks.url + "/webhook")
        execution = create(kernel, 0.6)
        ended = kernel.client.wait(execution, timeout=20)
        assert len(webhooks.sent) == 1
    account = account_for(kernel.db, logs, ended, LABELS)
    assert (account.attempts, account.repeats) == (1, 0)
    kinds = [event.type for event in kernel.client.events(execution, limit=1000)]
    assert kinds.count("dispatch.acked") == 1
    assert "dispatch.failed" not in kinds


def test_a_balancer_that_sends_a_webhook_to_both_processes_makes_one_run(
    kernel: KernelProcess, agents: tuple[AgentProcess, AgentProcess], logs: Path
) -> None:
    """As some do when the first has not answered: one of them runs it, the other nothing."""
    first, second = agents

    def to_both(sent: Sent) -> bool:
        send_again(sent, second)
        return False

    with LossyLine(("127.0.0.1", first.port), loses=to_both) as webhooks:
        first.register(kernel, webhooks.url + "/webhook")
        execution = create(kernel, 0.2)
        ended = kernel.client.wait(execution, timeout=20)
    account = account_for(kernel.db, logs, ended, LABELS)
    assert (account.attempts, account.repeats) == (1, 0)
    assert len(pids(logs, execution)) == 1
