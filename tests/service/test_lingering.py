"""Handlers that do not stop when they are told to, and handlers that hang."""

from __future__ import annotations

import logging
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.attempts import background
from support.children import Child, ChildScript
from support.services import SECRET, Service
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

PROGRAMS = Path(__file__).parent / "programs"

TOLD = "cancel requested, body still running"


@pytest.fixture
def freed() -> Iterator[threading.Event]:
    """Frees every body at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def in_a_queue(freed: threading.Event) -> None:
    waiting: queue.Queue[int] = queue.Queue()
    while not freed.is_set():
        try:
            waiting.get(timeout=0.2)
        except queue.Empty:
            continue


def in_a_loop(freed: threading.Event) -> None:
    number = 0
    while not freed.is_set():
        number += 1


@pytest.mark.parametrize("body", [in_a_queue, in_a_loop])
def test_c7g_a_body_that_goes_on_after_a_cancel_is_told_of_and_keeps_no_place(
    service: Service,
    freed: threading.Event,
    body: Callable[[threading.Event], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once in the log, with its stack, and on the agent until it ends; the execution is cancelled,
    and another one gets its place."""
    began = threading.Event()

    def goes_on_and_on() -> None:
        began.set()
        body(freed)

    def handler(goes_on: bool) -> str:
        if goes_on:
            rebuno.step("body", goes_on_and_on)
        return "served"

    agent = service.agent(handler, workers=1)
    execution = service.client.create("served", {"goes_on": True})
    assert began.wait(20)
    service.client.cancel(execution.id)
    assert service.run({"goes_on": False}) == "served"
    wait_until(lambda: agent.lingering, "the report of it")
    assert service.client.get(execution.id).status == "cancelled"
    assert list(agent.lingering) == [execution.id]
    assert body.__name__ in agent.lingering[execution.id]
    [told] = [it.getMessage() for it in caplog.records if TOLD in it.getMessage()]
    assert execution.id in told
    assert body.__name__ in told
    freed.set()
    wait_until(lambda: not agent.lingering, "its end")
    [step] = service.client.list_steps(execution.id)
    assert (step.status, step.result) == ("cancelled", None)


def test_c7g_a_body_of_run_that_goes_on_after_a_cancel_is_told_of(
    tmp_path: Path, freed: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, with its stack, though no agent serves it; ``run`` raises when it has ended."""
    began = threading.Event()

    def goes_on_and_on() -> None:
        began.set()
        in_a_queue(freed)

    def handler() -> None:
        rebuno.step("body", goes_on_and_on)

    def told() -> list[str]:
        return [it.getMessage() for it in caplog.records if TOLD in it.getMessage()]

    with Kernel(tmp_path / "kernel.db") as kernel:
        with background(lambda: rebuno.run(handler, key="one", kernel=kernel)) as running:
            assert began.wait(20)
            [execution] = kernel.list().executions
            kernel.cancel(execution.id)
            wait_until(told, "the report of it")
            freed.set()
        with pytest.raises(rebuno.ExecutionCancelled):
            running.result()
    [report] = told()
    assert execution.id in report
    assert "in_a_queue" in report


# -- handlers that only wait when their agent ends


@pytest.fixture
def resting(tmp_path: Path) -> Iterator[tuple[Service, Child]]:
    """An agent's process with a grace of a minute."""
    with Service(tmp_path) as service:
        script = ChildScript(PROGRAMS / "resting_agent.py", tmp_path, url=service.url)
        with script.start(agent="child", secret=SECRET, grace=60.0) as child:
            url = child.says(lambda said: isinstance(said, str), "its address")
            service.client.register_agent("child", url, SECRET)
            yield service, child


def test_c10_sigterm_ends_a_handler_that_only_waits_at_once(
    resting: tuple[Service, Child],
) -> None:
    """The process has ended within two seconds, and another one goes on under the lease that was
    given back."""
    service, child = resting
    execution = service.client.create("child", {"how": "wait"})
    child.hears({"waits": 1})
    service.agent(lambda how: rebuno.execution().dispatch_attempt, "child")
    started = time.monotonic()
    child.signal(signal.SIGTERM)
    assert child.returncode(10.0) == 0, child.errors
    assert time.monotonic() - started < 2.0
    assert service.client.wait(execution.id, timeout=5.0).output == 2


@pytest.mark.parametrize("how", ["sleep", "sleeps side by side"])
def test_c10_a_sleep_keeps_no_process(resting: tuple[Service, Child], how: str) -> None:
    """It is parked at the kernel."""
    service, child = resting
    execution = service.client.create("child", {"how": how})
    child.hears({"waits": 1})
    wait_until(lambda: service.client.get(execution.id).status == "blocked", "the sleep")
    started = time.monotonic()
    child.signal(signal.SIGTERM)
    assert child.returncode(10.0) == 0, child.errors
    assert time.monotonic() - started < 2.0
    assert service.client.get(execution.id).status == "blocked"


def test_c10_a_sleep_beside_a_body_is_ended_after_the_body(resting: tuple[Service, Child]) -> None:
    """The body keeps its grace, and is recorded."""
    service, child = resting
    execution = service.client.create("child", {"how": "beside a body"})
    child.hears({"body": "began"})
    child.signal(signal.SIGTERM)
    assert child.returncode(10.0) == 0, child.errors
    assert child.said[-1] == {"body": "ended"}
    steps = {step.target: step.status for step in service.client.list_steps(execution.id)}
    assert steps == {"sleep": "executing", "body": "succeeded"}


def test_c10_a_body_that_waits_keeps_its_grace(resting: tuple[Service, Child]) -> None:
    """What it does besides is not known; a second signal ends it."""
    service, child = resting
    service.client.create("child", {"how": "in a body"})
    child.hears({"waits": 1})
    child.signal(signal.SIGTERM)
    assert not child.ends_within(1.0)
    child.signal(signal.SIGTERM)
    assert child.returncode(10.0) == -signal.SIGTERM


def test_a_handler_of_a_kernel_in_the_process_that_only_waits_is_ended_at_once(
    tmp_path: Path,
) -> None:
    """By ``close``, which does not wait for its grace then."""
    waits = threading.Event()

    def handler() -> None:
        waits.set()
        rebuno.execution().wait(60)

    with Kernel(tmp_path / "kernel.db") as kernel:
        agent = rebuno.Agent("resting", kernel=kernel, grace=60.0)
        agent.bind(handler)
        execution = kernel.create("resting")
        assert waits.wait(20)
        started = time.monotonic()
        agent.close()
        assert time.monotonic() - started < 2.0
        claim = kernel.claim(execution.id)
        assert claim is not None, "the lease was given back"
        kernel.agent.release(claim.lease)


def test_a_handler_that_stops_in_time_is_not_told_of(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    began = threading.Event()

    def handler() -> None:
        began.set()
        rebuno.execution().wait(60)

    agent = service.agent(handler)
    execution = service.client.create("served")
    assert began.wait(20)
    service.client.cancel(execution.id)
    assert agent.join(20)
    assert agent.lingering == {}
    assert TOLD not in caplog.text


def hanging_first(freed: threading.Event, hang: Callable[[], Any]) -> Callable[[], str]:
    attempts: list[int] = []

    def handler() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            hang()
        return f"attempt {rebuno.execution().dispatch_attempt}"

    return handler


def test_a_handler_that_hangs_is_given_up_after_the_stall_timeout(
    tmp_path: Any, freed: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """Its lease runs out, and another attempt completes the execution; the log says why."""
    caplog.set_level(logging.INFO, "rebuno_sync")
    with Service(tmp_path, lease_timeout=1.0) as service:
        agent = service.agent(
            hanging_first(freed, lambda: freed.wait(60)), stall_timeout=0.5, workers=1
        )
        execution = service.client.create("served")
        assert service.client.wait(execution.id, timeout=20).output == "attempt 2"
        wait_until(lambda: list(agent.lingering) == [execution.id], "the report of it")
        freed.set()
        wait_until(lambda: not agent.lingering, "its end")
        assert agent.join(20)
    assert "is given up: its handler has neither begun nor ended an effect for" in caplog.text
    assert "(stall_timeout=0.5)" in caplog.text
    assert "given up, body still running" in caplog.text
    assert "cancel requested" not in caplog.text
    assert "terminated" not in caplog.text


def test_without_a_stall_timeout_a_handler_may_be_still_for_ever(
    tmp_path: Any, freed: threading.Event
) -> None:
    """It is renewed beyond its lease."""
    with Service(tmp_path, lease_timeout=1.5) as service:
        service.agent(hanging_first(freed, lambda: freed.wait(3)))
        assert service.run() == "attempt 1"


def test_waiting_is_no_stall(tmp_path: Any, freed: threading.Event) -> None:
    """``execution().wait`` and back-off wait as long as they were told to, and effects in a row
    move."""

    def waits() -> None:
        rebuno.execution().wait(2.5)
        for _ in range(10):
            rebuno.step("short", lambda: freed.wait(0.2))

    with Service(tmp_path, lease_timeout=2.0) as service:
        service.agent(hanging_first(freed, waits), stall_timeout=1.5)
        assert service.run() == "attempt 1"


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf")])
def test_a_stall_timeout_that_makes_no_sense_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="stall_timeout"):
        rebuno.Agent("a", secret="s", base_url="http://localhost:1", stall_timeout=bad)
