"""``sleep`` on a kernel that wakes: without a thread and without a lease."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.attempts import attempt, claimed, created
from support.faulty_port import FaultyPort
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import Proposal

HOUR = 3600.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed(tmp_path: Path, clock: ManualClock) -> Iterator[Kernel]:
    with Kernel(tmp_path / "timed.db", clock=clock) as kernel:
        yield kernel


def parked(kernel: Kernel, handler: Callable[[], Any], execution_id: str = "") -> str:
    """An execution whose attempt has ended in its sleep."""
    execution_id = execution_id or created(kernel)
    assert attempt(kernel, execution_id, handler).status == "blocked"
    return execution_id


def reasons(kernel: Kernel, execution_id: str) -> list[str]:
    """Why it was blocked, each time."""
    events = kernel.events(execution_id, limit=1000)
    return [it.payload["reason"] for it in events if it.type == "execution.blocked"]


def test_a_sleep_gives_its_thread_and_its_lease_back(timed: Kernel, clock: ManualClock) -> None:
    """Another attempt goes on after it, and does not sleep again."""
    done: list[str] = []

    def handler() -> str:
        rebuno.step("before", lambda: done.append("before"))
        rebuno.sleep(HOUR)
        rebuno.step("after", lambda: done.append("after"))
        return "slept"

    execution_id = created(timed)
    outcome = attempt(timed, execution_id, handler)
    assert (outcome.status, outcome.reason) == ("blocked", "the execution sleeps for 3600 s")
    assert timed.get(execution_id).status == "blocked"
    clock.advance(HOUR - 1)
    assert timed.claim(execution_id) is None
    clock.advance(1)
    assert attempt(timed, execution_id, handler).output == "slept"
    assert done == ["before", "after"]
    assert reasons(timed, execution_id) == ["sleeping"]


def test_a_pool_of_one_thread_serves_others_meanwhile(timed: Kernel, clock: ManualClock) -> None:
    """However many sleep."""

    def handler(seconds: float) -> str:
        rebuno.sleep(seconds)
        return "awake"

    agent = rebuno.Agent("sleeper", kernel=timed, workers=1, grace=0)
    agent.bind(handler)
    sleepers = [timed.create("sleeper", {"seconds": HOUR}).id for _ in range(5)]
    assert timed.wait(timed.create("sleeper", {"seconds": 0}).id, timeout=20).output == "awake"
    for execution_id in sleepers:
        wait_until(lambda it=execution_id: timed.get(it).status == "blocked", "a park")
    clock.advance(HOUR)
    for execution_id in sleepers:
        assert timed.wait(execution_id, timeout=20).output == "awake"
    agent.close()


def test_sleeps_in_threads_are_parked_together(timed: Kernel, clock: ManualClock) -> None:
    """The first that is over wakes the execution; the others go on with what is left of them."""
    ended: list[float] = []

    @rebuno.tool
    def nap(seconds: float) -> None:
        rebuno.sleep(seconds)
        ended.append(seconds)

    def handler() -> None:
        rebuno.parallel([(nap, 100.0), (nap, 200.0), (nap, 300.0)])

    execution_id = parked(timed, handler)
    for expected in ([100.0], [100.0, 200.0]):
        clock.advance(100)
        parked(timed, handler, execution_id)
        assert ended == expected
    clock.advance(100)
    assert attempt(timed, execution_id, handler).status == "completed"
    assert ended == [100.0, 200.0, 300.0]


@pytest.mark.parametrize("step", [3600, -3600])
def test_c36_a_stepped_wall_clock_changes_no_sleep_that_is_met_again(
    timed: Kernel, clock: ManualClock, step: float
) -> None:
    """What is left of it is counted on a clock that nobody sets."""
    execution_id = created(timed)
    cut_down = claimed(timed, execution_id).key
    timed.agent.submit(cut_down, Proposal("local", "sleep", '{"seconds":100}'))
    timed.agent.release(cut_down)
    clock.advance(40)
    clock.step_wall(step)
    parked(timed, lambda: rebuno.sleep(100), execution_id)
    clock.advance(59)
    assert timed.get(execution_id).status == "blocked"
    clock.advance(1)
    assert timed.get(execution_id).status == "running"


def test_a_tool_that_runs_beside_keeps_the_lease(kernel: Kernel) -> None:
    """It is finished first, then the sleep is parked."""
    execution_id = created(kernel)
    port = FaultyPort(kernel.agent)
    worked = threading.Event()

    @rebuno.tool
    def work() -> None:
        threading.Event().wait(0.3)
        assert port.count("suspend") == 0
        worked.set()

    def handler() -> None:
        rebuno.parallel([(rebuno.sleep, HOUR), work])

    assert attempt(kernel, execution_id, handler, port=port).status == "blocked"
    assert worked.is_set()
    statuses = {step.target: step.status for step in kernel.list_steps(execution_id)}
    assert statuses == {"sleep": "executing", "work": "succeeded"}


def test_a_body_that_must_not_run_twice_sleeps_in_its_thread(kernel: Kernel) -> None:
    """Parked, it would be indeterminate."""

    @rebuno.tool(idempotency="at_most_once")
    def slowly() -> str:
        rebuno.sleep(1.2)
        return "done"

    started = time.monotonic()
    assert rebuno.run(lambda: slowly(), key="k", agent="a", kernel=kernel) == "done"
    assert time.monotonic() - started >= 1.2
    assert reasons(kernel, kernel.list().executions[0].id) == []


def test_a_short_sleep_stays_in_its_thread(kernel: Kernel) -> None:
    """Less than a second is not worth another attempt."""
    rebuno.run(lambda: rebuno.sleep(0.2), agent="a", kernel=kernel)
    assert reasons(kernel, kernel.list().executions[0].id) == []


def test_a_kernel_that_does_not_wake_is_waited_for(kernel: Kernel) -> None:
    """Under the lease, as long as it takes."""
    execution_id = created(kernel)
    port = FaultyPort(kernel.agent)
    port.parks = False
    outcome = attempt(kernel, execution_id, lambda: rebuno.sleep(1.1), port=port)
    assert (outcome.status, port.count("suspend")) == ("completed", 0)


def test_a_thread_that_takes_its_time_is_waited_for(kernel: Kernel) -> None:
    """One that comes to its next effect within a second begins it before anything is parked."""
    execution_id = created(kernel)
    found: list[str] = []

    def handler() -> None:
        with rebuno.ThreadPoolExecutor(1) as pool:
            pool.submit(rebuno.sleep, HOUR)
            threading.Event().wait(0.3)
            rebuno.step("beside", lambda: found.append("beside"))

    assert attempt(kernel, execution_id, handler).status == "blocked"
    assert found == ["beside"]


def test_closing_does_not_wait_for_a_parked_sleep(kernel: Kernel) -> None:
    """C10, for sleeps that are parked: it ends at once, and another agent goes on later."""
    slept: list[int] = []

    def handler() -> None:
        rebuno.sleep(1.5)
        slept.append(1)

    first = rebuno.Agent("sleeper", kernel=kernel, grace=10)
    first.bind(handler)
    execution = kernel.create("sleeper")
    wait_until(lambda: kernel.get(execution.id).status == "blocked", "the park")
    started = time.monotonic()
    first.close()
    assert time.monotonic() - started < 1
    second = rebuno.Agent("sleeper", kernel=kernel, grace=0)
    second.bind(handler)
    kernel.wait(execution.id, timeout=20)
    assert slept == [1]
    second.close()


def test_waiting_in_vain_says_that_it_sleeps(kernel: Kernel) -> None:
    """And until when, from ``run`` as from ``wait``."""
    sleeps = r"it sleeps until 20\d\d-"
    with pytest.raises(TimeoutError, match=sleeps):
        rebuno.run(lambda: rebuno.sleep(HOUR), agent="a", kernel=kernel, timeout=0.2)
    with pytest.raises(TimeoutError, match=sleeps):
        kernel.wait(kernel.list().executions[0].id, timeout=0)


@pytest.mark.slow
def test_five_thousand_sleep_on_two_threads(timed: Kernel, clock: ManualClock) -> None:
    """None of them holds a thread; all wake, and nobody sleeps twice."""
    many, threads = 5000, threading.active_count()
    ran: list[str] = []

    def handler() -> None:
        rebuno.sleep(HOUR)
        ran.append(rebuno.execution().id)

    agent = rebuno.Agent("sleeper", kernel=timed, workers=2, grace=0)
    agent.bind(handler)
    for _ in range(many):
        timed.create("sleeper")

    def count(status: str) -> int:
        store = timed._store()
        sql = "SELECT count(*) FROM executions WHERE status = ?"
        found: int = store.read(lambda db: db.execute(sql, (status,)).fetchone())[0]
        return found

    wait_until(lambda: count("blocked") == many, "all of them asleep", seconds=180)
    assert ran == []
    assert threading.active_count() < threads + 20
    clock.advance(HOUR)
    wait_until(lambda: count("completed") == many, "all of them awake", seconds=180)
    assert len(ran) == len(set(ran)) == many
    agent.close()
