"""Retries of agents that a kernel delivers to: over crashes, closing and cancelling."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.children import ChildScript
from support.effect_log import EffectLog
from support.services import SECRET, Service
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel
from rebuno_sync.retrying import RetryPolicy

PROGRAMS = Path(__file__).parent / "programs"


class Busy(Exception):
    pass


def failed_tries(operator: Any, execution_id: str) -> list[dict[str, Any]]:
    events = operator.events(execution_id)
    return [event.payload for event in events if event.type == "step.retrying"]


def test_an_effect_of_an_agent_is_tried_again(either: Service) -> None:
    """It is one step; a kernel with the extension is told of each failed try."""
    tries: list[int] = []

    def flaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise Busy("not now")
        return len(tries)

    def handler() -> list[int]:
        before = rebuno.step("before", lambda: 1)
        policy = RetryPolicy(attempts=3, first_wait=0)
        return [before, rebuno.step("flaky", flaky, retries=policy)]

    either.agent(handler)
    assert either.run() == [1, 3]
    execution = either.kernel.list().executions[0]
    assert len(either.kernel.list_steps(execution.id)) == 2
    told = [it["attempt"] for it in failed_tries(either.kernel, execution.id)]
    assert told in ([1, 2], [])


class Flaky:
    """Fails at its first try, after an effect inside it."""

    def __init__(self) -> None:
        self.tries = 0

    def __call__(self) -> str:
        self.tries += 1
        rebuno.step("nested", lambda: "recorded")
        if self.tries == 1:
            raise Busy
        return f"try {self.tries}"

    def handler(self) -> str:
        policy = RetryPolicy(attempts=2, first_wait=0)
        return rebuno.step("flaky", self, retries=policy)


def test_what_a_failed_try_did_is_recorded_before_it_is(service: Service) -> None:
    """A result that is held back travels first: it must not be lost while the effect around it is
    tried again."""
    service.agent(Flaky().handler)
    assert service.run() == "try 2"
    execution = service.kernel.list().executions[0]
    told = [
        (event.type, event.payload["target"])
        for event in service.kernel.events(execution.id)
        if event.type in ("step.succeeded", "step.retrying")
    ]
    assert told == [
        ("step.succeeded", "nested"),
        ("step.retrying", "flaky"),
        ("step.succeeded", "flaky"),
    ]


def test_lost_answers_about_tries_are_asked_for_again(service: Service) -> None:
    """Nothing is tried twice for them."""
    flaky = Flaky()
    service.agent(flaky.handler)
    service.wire.lose_reply("attempt")
    service.wire.lose_request("attempt")
    assert service.run() == "try 2"
    assert flaky.tries == 2
    execution = service.kernel.list().executions[0]
    assert len(failed_tries(service.kernel, execution.id)) == 1


def test_a_kernel_that_turns_out_not_to_keep_tries_is_told_nothing(service: Service) -> None:
    """The tries go on: the kernel before this one, or behind another address, had it."""
    flaky = Flaky()
    service.agent(flaky.handler)
    service.wire.refuse("attempt", 404, b"404 page not found", times=1)
    assert service.run() == "try 2"
    assert service.wire.count("attempt") == 1


@contextmanager
def in_process(folder: Path, handler: Callable[[], Any]) -> Iterator[Kernel]:
    """A kernel and an agent without a wire between them."""
    with Kernel(folder / "local.db") as kernel:
        agent = rebuno.Agent("served", kernel=kernel, grace=0)
        agent.bind(handler)
        try:
            yield kernel
        finally:
            agent.close()


@contextmanager
def over_http(folder: Path, handler: Callable[[], Any]) -> Iterator[rebuno.Client]:
    with Service(folder) as service:
        service.agent(handler)
        yield service.client


@pytest.mark.parametrize("deployed", [over_http, in_process])
def test_c7c_cancelling_ends_a_back_off_at_once(tmp_path: Path, deployed: Any) -> None:
    """The execution is cancelled and its handler has ended within a second."""
    ended: list[float] = []

    def fails() -> None:
        raise Busy

    def handler() -> None:
        try:
            rebuno.step("flaky", fails, retries=RetryPolicy(first_wait=600, longest_wait=600))
        finally:
            ended.append(time.monotonic())

    with deployed(tmp_path, handler) as operator:
        execution = operator.create("served")
        wait_until(lambda: failed_tries(operator, execution.id), "a failed try")
        cancelled = time.monotonic()
        operator.cancel(execution.id)
        wait_until(lambda: ended, "the end of the handler")
        assert ended[0] - cancelled < 1.0
        [step] = operator.list_steps(execution.id)
        assert (operator.get(execution.id).status, step.status) == ("cancelled", "cancelled")


@pytest.mark.slow
def test_tries_and_the_rest_of_the_back_off_survive_a_kill(tmp_path: Path) -> None:
    """A process is killed with SIGKILL in the middle of a back-off of 3 s: the next one waits for
    what is left of it, and has the tries that are left. No doubt arises about an effect that must
    not happen twice."""
    log = EffectLog(tmp_path / "log")
    script = ChildScript(
        PROGRAMS / "retrying_agent.py", tmp_path, log=log.path, agent="child", secret=SECRET
    )
    with Service(tmp_path, lease_timeout=1.0) as service:
        given: dict[str, Any] = {"url": service.url, "wait": 3.0, "succeeds_at": 3}
        with script.start(**given) as first:
            _register(service, first)
            execution = service.client.create("child")
            wait_until(lambda: failed_tries(service.client, execution.id), "a failed try")
            assert not first.ends_within(1.5)
            first.kill()
        with script.start(**given) as second:
            _register(service, second)
            done = service.client.wait(execution.id, timeout=30)
        assert done.output == "charged at try 3"
        told = [it["attempt"] for it in failed_tries(service.client, execution.id)]
        assert told == [1, 2]
        tries = log.of("try")
        waits = [(b.at - a.at) / 1e6 for a, b in itertools.pairwise(tries)]
        # A back-off that began anew would have taken 5.5 s: 1.5, the lease, and 3.
        assert all(3.0 <= seconds < 5.0 for seconds in waits), waits
        assert len({line.pid for line in tries[1:]} | {tries[0].pid}) == 2


@pytest.mark.slow
def test_c10_a_back_off_does_not_hold_up_closing(tmp_path: Path) -> None:
    """SIGTERM ends the process after its grace; the lease is given back, the step is as it was, and
    another process waits for what is left of the back-off."""
    log = EffectLog(tmp_path / "log")
    script = ChildScript(
        PROGRAMS / "retrying_agent.py", tmp_path, log=log.path, agent="child", secret=SECRET
    )
    with Service(tmp_path) as service:
        given: dict[str, Any] = {"url": service.url, "wait": 3.0, "succeeds_at": 2, "grace": 0.5}
        with script.start(**given) as first:
            _register(service, first)
            execution = service.client.create("child")
            wait_until(lambda: failed_tries(service.client, execution.id), "a failed try")
            assert not first.ends_within(1.5)
            started = time.monotonic()
            first.signal(signal.SIGTERM)
            assert first.ends_within(2.5), first.errors
            assert time.monotonic() - started < 2.5
            assert first.returncode() == 0, first.errors
        [step] = service.client.list_steps(execution.id)
        assert step.status == "allowed"
        with script.start(**given) as second:
            _register(service, second)
            done = service.client.wait(execution.id, timeout=30)
        assert done.output == "charged at try 2"
        one, two = log.of("try")
        assert 3.0 <= (two.at - one.at) / 1e6 < 5.0


def _register(service: Service, child: Any) -> None:
    url = child.says(lambda said: isinstance(said, str), "its address")
    service.client.register_agent("child", url, SECRET)
