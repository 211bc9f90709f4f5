"""Effects that may run only so long, whatever they block in."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from contextvars import ContextVar
from typing import Any

import pytest
import requests
from support.attempts import attempt, created
from support.faulty_port import FaultyPort
from support.replays import live_and_replayed, only_step
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync import NoActiveExecution, PolicyError, StepTimeout, ToolError
from rebuno_sync.kernel import Kernel
from rebuno_sync.retrying import RetryPolicy

TENANT: ContextVar[str] = ContextVar("tenant", default="nobody")

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i) FROM n"


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """What bodies block in, at the latest until the test is over."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def ways_to_block() -> Iterator[dict[str, Callable[[], Any]]]:
    """Bodies that block for longer than any test, and are freed after it where that can be."""
    with ExitStack() as after:
        listening = after.enter_context(socket.create_server(("127.0.0.1", 0)))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        never, free_the_process = os.pipe()
        after.callback(os.close, never)
        after.callback(os.close, free_the_process)
        database = sqlite3.connect(":memory:", check_same_thread=False)
        after.callback(database.interrupt)

        def query() -> Any:
            with closing(database):
                return database.execute(ENDLESS).fetchone()

        yield {
            "requests": lambda: requests.get(url),
            "subprocess": lambda: subprocess.run(
                [sys.executable, "-c", "input()"], stdin=never, stderr=subprocess.DEVNULL
            ),
            "sqlite": query,
            "sleep": lambda: time.sleep(60),
        }


def test_c11_a_timeout_ends_whatever_blocks(
    kernel: Kernel, ways_to_block: dict[str, Callable[[], Any]]
) -> None:
    """The step fails between 2 and 2.5 seconds in sockets, subprocesses, SQLite and sleeps, and
    others run beside it and after it."""

    def timed(name: str) -> tuple[float, str]:
        started = time.monotonic()
        try:
            rebuno.step(name, ways_to_block[name], timeout=2)
        except StepTimeout as error:
            return time.monotonic() - started, str(error)
        raise AssertionError(f"{name} did not time out")

    def handler() -> dict[str, tuple[float, str]]:
        with rebuno.ThreadPoolExecutor(8) as pool:
            found = dict(zip(ways_to_block, pool.map(timed, ways_to_block), strict=True))
            assert pool.submit(rebuno.step, "after", lambda: "served").result() == "served"
        return found

    for name, (seconds, told) in rebuno.run(handler, agent="a", kernel=kernel).items():
        assert 2 <= seconds <= 2.5, name
        assert told == f"{name}: timed out after 2 s"
    steps = kernel.list_steps(kernel.list(limit=1).executions[0].id)
    assert sorted(step.status for step in steps) == ["failed"] * 4 + ["succeeded"]


def test_a_timeout_is_recorded(
    kernel: Kernel, released: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """A replay raises the same; the record and the log tell where the body was."""

    def blocks_here() -> None:
        released.wait(60)

    live, replayed = live_and_replayed(
        kernel, lambda: rebuno.step("slow", blocks_here, timeout=0.05)
    )
    for error in (live, replayed):
        assert type(error) is StepTimeout
        assert isinstance(error, ToolError)
        assert str(error) == "slow: timed out after 0.05 s"
        assert (error.reason, error.error_type) == ("timeout", "rebuno_sync.errors.StepTimeout")
        assert "blocks_here" in error.traceback
    step = only_step(kernel)
    assert (live.step_id, live.tool_id) == (step.step_id, "slow")
    assert step.error["message"] == "timed out after 0.05 s"
    [told] = [it.getMessage() for it in caplog.records if "timed out" in it.getMessage()]
    first, *stack = told.splitlines()
    execution_id = kernel.list(limit=1).executions[0].id
    assert first == f"execution {execution_id}: slow timed out after 0.05 s, its body goes on at:"
    assert "blocks_here" in stack[0]
    assert not [line for line in stack if "/rebuno_sync/" in line]


def test_an_at_most_once_call_is_refused_after_its_timeout(
    kernel: Kernel, released: threading.Event
) -> None:
    """It may still happen: the same call again is answered as after a crash, live and replayed."""
    charged: list[str] = []
    seen: list[tuple[type[Exception], str]] = []

    def body(order: str) -> None:
        charged.append(order)
        released.wait(60)

    def charge(order: str) -> None:
        try:
            rebuno.step(
                "charge",
                body,
                args={"order": order},
                timeout=0.05,
                idempotency="at_most_once",
            )
        except (StepTimeout, PolicyError) as error:
            seen.append((type(error), getattr(error, "reason", str(error))))

    def handler() -> None:
        charge("A")
        charge("A")
        charge("B")
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rebuno.run(handler, key="k", kernel=kernel)
    rebuno.run(handler, key="k", kernel=kernel)
    assert charged == ["A", "B"]
    assert seen[:3] == seen[3:]
    assert seen[0] == seen[2] == (StepTimeout, "indeterminate")
    assert seen[1][0] is PolicyError


def test_a_timeout_in_a_nested_effect_is_its_own(kernel: Kernel, released: threading.Event) -> None:
    """The effect around it failed by an exception, and did not time out."""

    def outer() -> None:
        rebuno.step("inner", lambda: released.wait(60), timeout=0.05)

    live, replayed = live_and_replayed(kernel, lambda: rebuno.step("outer", outer, timeout=30))
    for error in (live, replayed):
        assert type(error) is ToolError
        assert isinstance(error.__cause__, StepTimeout)
        assert error.tool_id == "outer"


def test_a_body_in_time_gives_what_it_returns_or_raises(kernel: Kernel) -> None:
    """As without a timeout, from another thread."""
    here = threading.get_ident()
    live, replayed = live_and_replayed(
        kernel, lambda: rebuno.step("there", threading.get_ident, timeout=30)
    )
    assert live == replayed != here

    def fails() -> None:
        raise LookupError("nothing there")

    live, replayed = live_and_replayed(kernel, lambda: rebuno.step("no", fails, timeout=30))
    assert isinstance(live.__cause__, LookupError)
    assert "fails" in live.traceback
    assert str(live) == str(replayed)


def test_a_timed_body_has_its_callers_whole_context(kernel: Kernel) -> None:
    """The execution and every other context variable; what it sets is its own."""

    def body() -> tuple[str, str]:
        seen = TENANT.get()
        TENANT.set("changed")
        return seen, rebuno.execution().id

    def handler() -> list[Any]:
        TENANT.set("acme")
        seen = rebuno.tool("seen", timeout=30)(body)()
        return [seen, TENANT.get(), rebuno.execution().id]

    seen, after, execution_id = rebuno.run(handler, agent="a", kernel=kernel)
    assert (seen, after) == (["acme", execution_id], "acme")


def test_a_signal_passes_out_of_a_timed_body(kernel: Kernel) -> None:
    """The attempt ends, and the step is left open."""
    execution_id = created(kernel)
    port = FaultyPort(kernel.agent)

    def body() -> None:
        kernel.cancel(execution_id)
        rebuno.step("nested", lambda: None)

    outcome = attempt(
        kernel, execution_id, lambda: rebuno.step("outer", body, timeout=30), port=port
    )
    assert outcome.status == "terminated"
    assert port.count("complete_step") == port.count("fail_step") == 0


def test_c11_a_late_body_can_record_nothing_and_start_nothing(
    kernel: Kernel, released: threading.Event
) -> None:
    """Neither its result nor an effect of its own, nor one that a body called by it starts."""
    late: list[Any] = []
    begun: list[str] = []
    nested_runs = threading.Event()
    over = [threading.Event(), threading.Event()]

    def try_effect(name: str) -> None:
        try:
            rebuno.step(name, lambda: begun.append(name))
        except NoActiveExecution as error:
            late.append(str(error))

    def nested() -> str:
        nested_runs.set()
        released.wait(60)
        try_effect("of the nested body")
        over[0].set()
        return "nested"

    def outer() -> str:
        rebuno.step("nested", nested)
        try_effect("of the body")
        over[1].set()
        return "outer"

    def handler() -> str:
        try:
            rebuno.step("outer", outer, timeout=0.5)
        except StepTimeout:
            assert nested_runs.is_set()
        released.set()
        assert all(event.wait(20) for event in over)
        return "done"

    assert rebuno.run(handler, agent="a", kernel=kernel) == "done"
    assert begun == []
    assert len(late) == 2
    assert all("timed out" in told for told in late)
    steps = kernel.list_steps(kernel.list(limit=1).executions[0].id)
    assert {step.target: step.status for step in steps} == {
        # It had begun before, and has happened: that is recorded.
        "nested": "succeeded",
        "outer": "failed",
    }


def test_an_execution_does_not_wait_for_bodies_that_timed_out(
    kernel: Kernel, released: threading.Event
) -> None:
    """It ends when its handler has."""
    started = time.monotonic()

    def handler() -> None:
        with pytest.raises(StepTimeout):
            rebuno.step("slow", lambda: released.wait(60), timeout=0.05)

    rebuno.run(handler, agent="a", kernel=kernel)
    assert time.monotonic() - started < 5


def test_a_body_that_timed_out_may_be_tried_again(
    kernel: Kernel, released: threading.Event
) -> None:
    """Each try has the whole time, and back-off is none of it."""
    tries: list[int] = []

    def body() -> str:
        tries.append(1)
        if len(tries) < 3:
            released.wait(60)
        return "in time"

    policy = RetryPolicy(attempts=3, first_wait=0.5, factor=1, jitter=0)

    def handler() -> str:
        return rebuno.step("slow", body, timeout=0.25, retries=policy)

    started = time.monotonic()
    assert rebuno.run(handler, agent="a", kernel=kernel) == "in time"
    assert time.monotonic() - started >= 2 * 0.25 + 2 * 0.5
    assert only_step(kernel).status == "succeeded"


def test_an_interrupt_leaves_a_timed_body_to_record_nothing_and_waits_for_it(
    kernel: Kernel,
) -> None:
    """Ctrl-C gives the lease back only when the body is over: nobody runs it a second time
    beside it."""
    execution_id = created(kernel)
    port = FaultyPort(kernel.agent)
    order: list[str] = []
    main = threading.main_thread().ident
    assert main is not None

    def body() -> None:
        signal.pthread_kill(main, signal.SIGINT)
        wait_until(lambda: interrupted, "the interrupt")
        order.append("body over")

    interrupted: list[int] = []

    def handler() -> None:
        try:
            rebuno.step("body", body, timeout=60)
        finally:
            interrupted.append(1)

    port.before("release", lambda: order.append("released"))
    with pytest.raises(KeyboardInterrupt):
        attempt(kernel, execution_id, handler, port=port)
    assert order == ["body over", "released"]
    assert port.count("complete_step") == port.count("fail_step") == 0


def test_an_effect_in_a_body_that_timed_out_is_not_tried_again(
    kernel: Kernel, released: threading.Event
) -> None:
    """A further try is something that it starts."""
    tries: list[int] = []
    told: list[str] = []
    over = threading.Event()

    def flaky() -> None:
        tries.append(1)
        raise OSError("again, please")

    def outer() -> None:
        try:
            policy = RetryPolicy(attempts=5, first_wait=1, jitter=0)
            rebuno.step("flaky", flaky, retries=policy)
        except NoActiveExecution as error:
            told.append(str(error))
        over.set()

    def handler() -> None:
        with pytest.raises(StepTimeout):
            rebuno.step("outer", outer, timeout=0.5)
        assert over.wait(20)

    rebuno.run(handler, agent="a", kernel=kernel)
    assert len(tries) == 1
    assert "timed out" in told[0]
