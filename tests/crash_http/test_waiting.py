"""The kernel, or its agent, is killed while executions wait and while somebody listens."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from support.attempts import background
from support.children import ChildScript
from support.effect_log import EffectLog
from support.histories import check_history
from support.receiver import Receiver
from support.waiting import wait_until

from rebuno_sync.errors import NetworkError
from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel_client import KernelClient
from rebuno_sync.listening import LiveStream
from rebuno_sync.types import Delta, Proposal

from .processes import SECRET, TOKEN, AgentProcess, KernelProcess

AGENT = "waiting"
GRANTER = Path(__file__).parent / "programs" / "granter.py"
ASK = "rules: [{id: ask, when: {target: charge}, then: {decision: require_approval}}]"
ALL_ELSE = "default_action: allow"


class Stage:
    """A kernel and an agent whose executions wait."""

    def __init__(self, folder: Path) -> None:
        self.logs = folder / "logs"
        self.logs.mkdir()
        self.kernel = KernelProcess(folder, "--lease-timeout", "10")
        self.client = self.kernel.client
        self.agent = AgentProcess(
            "waiting_served.py", folder, AGENT, kernel=self.kernel.url, logs=self.logs
        )

    def create(self, seconds: float) -> str:
        """The id of an execution that waits."""
        execution = self.client.create(AGENT, {"seconds": seconds})
        wait_until(lambda: self.client.get(execution.id).status == "blocked", "its waiting")
        return execution.id

    def restart(self) -> None:
        """Kill both with SIGKILL, and start them again."""
        for process in (self.kernel, self.agent):
            process.kill()
        for process in (self.kernel, self.agent):
            process.start()
        for process in (self.kernel, self.agent):
            process.wait()

    def effects(self, execution_id: str) -> list[str]:
        return [line.label for line in EffectLog(self.logs / execution_id).lines()]

    def check(self, execution_id: str) -> None:
        with Kernel(self.kernel.db) as kernel:
            check_history(kernel, execution_id, by_webhook=True)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    with stage.kernel, stage.agent:
        stage.agent.register(stage.kernel)
        yield stage


# -- sleeps


@pytest.mark.slow
def test_c10_a_parked_sleep_outlives_its_kernel_and_its_agent(stage: Stage) -> None:
    """Both are killed: what is due meanwhile wakes when they are back, what is due later then, and
    a cancel ends a sleeper within a second. Each effect was done once."""
    short, long, cancelled = (stage.create(seconds) for seconds in (2.0, 6.0, 3600.0))
    began = time.monotonic()
    stage.kernel.kill()
    threading.Event().wait(2.0)  # The time of the shortest passes while nobody is there.
    stage.restart()
    assert stage.client.wait(short, timeout=20).status == "completed"
    asked = time.monotonic()
    stage.client.cancel(cancelled)
    assert time.monotonic() - asked < 1.0
    assert stage.client.get(cancelled).status == "cancelled"
    assert stage.client.wait(long, timeout=20).status == "completed"
    assert time.monotonic() - began > 5.0
    for execution_id in (short, long, cancelled):
        ended = execution_id != cancelled
        assert stage.effects(execution_id) == ["before", "after"][: 1 + ended]
        steps = {step.target: step for step in stage.client.list_steps(execution_id)}
        assert steps["sleep"].status == ("succeeded" if ended else "cancelled")
        stage.check(execution_id)


# -- approvals


@pytest.mark.slow
def test_c17_a_kernel_is_killed_while_processes_grant_at_once(stage: Stage) -> None:
    """Four processes grant six approvals, over a kernel that is killed before that, with its
    agent, and amid it: each is decided once, by who was told so or by one whose answer was lost,
    and each body runs once."""
    stage.client.set_policy(AGENT, f"{ALL_ELSE}\n{ASK}")
    ids = [stage.create(0) for _ in range(6)]
    approvals = {approval.id: approval.execution_id for approval in stage.client.list_approvals()}
    assert sorted(approvals.values()) == sorted(ids)
    stage.restart()
    assert {approval.id for approval in stage.client.list_approvals()} == set(approvals)
    script = ChildScript(
        GRANTER, stage.logs, url=stage.kernel.url, token=TOKEN, approvals=list(approvals)
    )
    names = [f"process {n}" for n in range(4)]
    with ExitStack() as started:
        granters = {name: started.enter_context(script.start(name=name)) for name in names}
        granters["process 0"].says(lambda said: isinstance(said, list), "its first answer")
        stage.kernel.kill()
        stage.kernel.start()
        for granter in granters.values():
            assert granter.result(60) == "done"
        told = {name: dict(granter.said[1:-1]) for name, granter in granters.items()}
    for approval_id, execution_id in approvals.items():
        execution = stage.client.wait(execution_id, timeout=30)
        assert len(execution.output) == 3
        assert stage.effects(execution_id) == ["before", "charge", "after"]
        approval = stage.client.get_approval(approval_id)
        assert approval.status == "granted"
        granted = [name for name in names if told[name][approval_id] == "granted"]
        assert granted in ([approval.decided_by], [])
        for name in set(names) - set(granted):
            assert approval.decided_by in told[name][approval_id]
        stage.check(execution_id)


# -- streams


class Publisher:
    """A kernel with an execution whose step publishes what it is told to."""

    def __init__(self, kernel: KernelProcess, receiver: Receiver) -> None:
        self.kernel = kernel
        kernel.client.register_agent(AGENT, receiver.url, SECRET)
        self.execution_id = kernel.client.create(AGENT).id
        self._agent = KernelClient(kernel.url, AGENT, SECRET)
        self._lease = receiver.wait_for(1)[0].lease
        self._step_id = self._agent.submit(self._lease, Proposal("llm_call", "m", "{}")).step_id

    def publish(self, seq: int) -> Delta:
        delta = Delta(self._step_id, seq, f"piece {seq}")
        self._agent.delta(self._lease, *delta)
        return delta

    def close(self) -> None:
        self._agent.close()


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Publisher]:
    with (
        KernelProcess(tmp_path) as kernel,
        Receiver() as receiver,
        closing(Publisher(kernel, receiver)) as publisher,
    ):
        yield publisher


def broken_off(stream: LiveStream) -> float:
    """When the stream has broken off, which its listener is told."""
    with pytest.raises(NetworkError):
        next(stream)
    return time.monotonic()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_c10_a_kernel_with_an_open_stream_stops_within_two_seconds(
    publisher: Publisher, number: signal.Signals
) -> None:
    """With status 0; whoever listens is told, once the kernel has been asked in vain for more."""
    kernel = publisher.kernel
    assert kernel.process is not None
    with kernel.client.stream(publisher.execution_id) as stream:
        assert publisher.publish(0) == next(stream)
        with background(lambda: broken_off(stream)) as listening:
            began = time.monotonic()
            kernel.process.send_signal(number)
            assert kernel.process.wait(20) == 0
            assert time.monotonic() - began < 2.0
            assert listening.result() - began < 5.0
    assert "Traceback" not in kernel.said


def test_c10_a_listener_of_a_kernel_that_was_killed_goes_on_with_the_next(
    publisher: Publisher,
) -> None:
    """It is told at once; listening again it gets what is published from then on, by the attempt
    that was under way."""
    kernel, execution_id = publisher.kernel, publisher.execution_id
    with kernel.client.stream(execution_id) as stream:
        assert publisher.publish(0) == next(stream)
        kernel.kill()
        began = time.monotonic()
        assert broken_off(stream) - began < 5.0
    kernel.start()
    kernel.wait()
    with kernel.client.stream(execution_id) as stream:
        sent = [publisher.publish(seq) for seq in (1, 2)]
        assert [next(stream) for _ in sent] == sent
    assert kernel.client.get(execution_id).status == "running"
