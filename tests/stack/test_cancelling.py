"""Cancelling an execution that runs: when it is noticed, and that it has one end."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.attempts import attempt, background, created
from support.labels import label
from support.services import Service
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync import ConflictError, LeaseSuperseded
from rebuno_sync.kernel import Kernel

OVER = ("terminated", "lease_superseded")
TERMINAL = ("execution.completed", "execution.failed", "execution.cancelled")


def terminal_events(kernel: Kernel, execution_id: str) -> list[str]:
    events = kernel.events(execution_id, limit=1000)
    return [event.type for event in events if event.type in TERMINAL]


# -- C7


def wait_in_the_handler() -> None:
    rebuno.execution().wait(60)


def sleep_durably() -> None:
    rebuno.sleep(60)


def sleep_in_a_thread() -> None:
    rebuno.parallel([(rebuno.sleep, 60), (rebuno.sleep, 61)], max_workers=2)


def queue_behind_a_sleep() -> None:
    rebuno.parallel([(rebuno.sleep, 60), (rebuno.sleep, 61)], max_workers=1)


WAITS = [
    (wait_in_the_handler, "terminated"),
    (queue_behind_a_sleep, "terminated"),
    (sleep_durably, "blocked"),
    (sleep_in_a_thread, "blocked"),
]
"""How a handler waits, and how its attempt ends: a sleep is parked at the kernel."""


@pytest.mark.parametrize("where", ["in process", "over HTTP"])
@pytest.mark.parametrize(("waits", "outcome"), WAITS, ids=label)
def test_c7_a_cancel_ends_a_wait_within_a_second(
    tmp_path: Path,
    where: str,
    waits: Callable[[], None],
    outcome: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """(a) ``execution().wait``, (d) a durable sleep: the handler has ended, and nothing goes on."""
    caplog.set_level(logging.INFO, "rebuno_sync.agent")
    waiting, ended = threading.Event(), threading.Event()
    after: list[str] = []

    def handler() -> None:
        try:
            rebuno.step("begun", waiting.set)
            waits()
            after.append("it went on")
        finally:
            ended.set()

    with Service(tmp_path, lease_timeout=120) as service:
        if where == "over HTTP":
            service.agent(handler)
        else:
            agent = rebuno.Agent("served", kernel=service.kernel, grace=0)
            agent.bind(handler)
        execution_id = service.kernel.create("served").id
        assert waiting.wait(20)
        if outcome == "blocked":
            wait_until(lambda: service.kernel.get(execution_id).status == "blocked", "a park")
        else:
            threading.Event().wait(0.05)  # Now it is most likely in its wait.
        started = time.monotonic()
        service.kernel.cancel(execution_id)
        assert ended.wait(20)
        assert time.monotonic() - started < 1.0
        assert service.kernel.get(execution_id).status == "cancelled"
        assert terminal_events(service.kernel, execution_id) == ["execution.cancelled"]
        wait_until(lambda: f"this attempt ends as {outcome}" in caplog.text, "the outcome")
        if where == "in process":
            agent.close()
    assert after == []


def test_c20_a_deadline_ends_a_run_that_nobody_looks_at(tmp_path: Path) -> None:
    """Its handler is woken, long before its next heartbeat would find out."""
    with Kernel(tmp_path / "kernel.db", deadline=1.0) as kernel:
        started = time.monotonic()
        with pytest.raises(rebuno.ExecutionCancelled, match="deadline_exceeded"):
            rebuno.run(lambda: rebuno.execution().wait(60), agent="a", kernel=kernel)
        assert 0.9 < time.monotonic() - started < 4


def test_a_cancel_that_a_heartbeat_finds_is_called_one(tmp_path: Path) -> None:
    """Not another attempt's doing: the handler is told of all that it can be, the outcome of what
    it is."""
    began = threading.Event()
    seen: list[str] = []

    def handler() -> None:
        began.set()
        try:
            rebuno.execution().wait(60)
        except LeaseSuperseded as signal:
            seen.append(str(signal))
            raise

    with Kernel(tmp_path / "own.db", lease_timeout=1.5) as kernel:
        execution_id = created(kernel)
        with background(lambda: attempt(kernel, execution_id, handler)) as thread:
            assert began.wait(20)
            kernel.cancel(execution_id)
            assert thread.result().status == "terminated"
            assert thread.result().reason == "the execution is cancelled"
    [told] = seen
    assert told == ("the execution was cancelled or has ended, or another attempt holds its lease")


# -- C9


class Loop:
    """A handler that performs one effect after another, each of which takes a little while."""

    def __init__(self) -> None:
        self.bodies: dict[str, int] = {}
        self._effect = rebuno.tool("effect")(self._body)

    def _body(self, execution_id: str, n: int) -> None:
        self.bodies[execution_id] = n + 1
        threading.Event().wait(random.uniform(0.005, 0.015))

    def handler(self) -> None:
        execution_id = rebuno.execution().id
        for n in range(1000):
            self._effect(execution_id, n)

    def cancelled(self, kernel: Kernel, execution_id: str) -> int:
        """Cancel it at a random moment; how many bodies had begun by then."""
        wait_until(lambda: execution_id in self.bodies, "the first effect")
        threading.Event().wait(random.uniform(0, 0.1))
        kernel.cancel(execution_id)
        return self.bodies[execution_id]

    def check(self, kernel: Kernel, execution_id: str, begun: int) -> None:
        # One that was let proceed before the cancel may begin its body a moment after it.
        assert self.bodies[execution_id] - begun <= 1
        assert kernel.get(execution_id).status == "cancelled"
        events = [event.type for event in kernel.events(execution_id, limit=1000)]
        later = events[events.index("execution.cancelled") :]
        assert {event for event in later if event.startswith("step.")} <= {"step.cancelled"}


@pytest.mark.slow
def test_c9_cancelled_at_a_random_moment_it_ends_at_the_next_effect_at_the_latest(
    kernel: Kernel,
) -> None:
    """Two hundred times: cancelled, and no effect begins after that."""
    loop = Loop()

    def once(_: int) -> None:
        execution_id = created(kernel)
        with background(lambda: attempt(kernel, execution_id, loop.handler)) as thread:
            begun = loop.cancelled(kernel, execution_id)
            assert thread.result().status in OVER
        loop.check(kernel, execution_id, begun)

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(once, range(200)))


def test_c9_cancelled_at_a_random_moment_it_ends_over_http_too(tmp_path: Path) -> None:
    """The same with an agent that a kernel delivers to."""
    loop = Loop()
    with Service(tmp_path) as service:
        agent = service.agent(loop.handler)

        def once(_: int) -> None:
            execution_id = service.kernel.create("served").id
            begun = loop.cancelled(service.kernel, execution_id)
            begun_by_execution[execution_id] = begun

        begun_by_execution: dict[str, int] = {}
        with ThreadPoolExecutor(5) as pool:
            list(pool.map(once, range(30)))
        assert agent.join(20)
        for execution_id, begun in begun_by_execution.items():
            loop.check(service.kernel, execution_id, begun)


@pytest.mark.slow
def test_c9_cancelled_and_completed_in_the_same_instant_it_has_one_end(kernel: Kernel) -> None:
    """Five hundred times: one terminal event, and both callers are told the same."""
    ends: dict[str, int] = {}
    for _ in range(500):
        execution_id = created(kernel)
        both = threading.Barrier(2)

        def handler(both: threading.Barrier = both) -> str:
            rebuno.step("last", lambda: 1)
            both.wait(20)
            return "done"

        with background(
            lambda execution_id=execution_id, handler=handler: attempt(  # type: ignore[misc]
                kernel, execution_id, handler
            )
        ) as thread:
            both.wait(20)
            try:
                kernel.cancel(execution_id)
                cancelled = True
            except ConflictError:
                cancelled = False
            outcome = thread.result()
        status = kernel.get(execution_id).status
        assert status == ("cancelled" if cancelled else "completed")
        assert outcome.status in (OVER if cancelled else ("completed",))
        assert terminal_events(kernel, execution_id) == [f"execution.{status}"]
        ends[status] = ends.get(status, 0) + 1
    assert sum(ends.values()) == 500
