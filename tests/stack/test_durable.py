"""``sleep``, ``now``, ``uuid4`` and ``random``: asked once, the same on every replay."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.attempts import attempt, background, created
from support.faulty_port import FaultyPort
from support.replays import live_and_replayed, only_step
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync import ExecutionFailed, NoActiveExecution
from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel

ASKED: dict[str, Callable[..., Any]] = {
    "now": rebuno.now,
    "uuid4": rebuno.uuid4,
    "random": rebuno.random,
}


@pytest.mark.parametrize("name", [None, "a name"])
@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_an_answer_is_the_same_live_and_replayed(
    kernel: Kernel, ask: Callable[..., Any], name: str | None
) -> None:
    """One step of kind ``local``, named like the function."""
    live, replayed = live_and_replayed(kernel, lambda: ask(name=name))
    assert live == replayed
    assert type(live) is type(replayed)
    step = only_step(kernel)
    assert (step.kind, step.target) == ("local", ask.__name__)
    assert step.args == ({} if name is None else {"name": name})


def test_now_is_aware_and_in_utc_on_the_kernels_clock(tmp_path: Path) -> None:
    """What the kernel takes for the time."""
    with Kernel(tmp_path / "kernel.db", clock=ManualClock()) as kernel:
        live, replayed = live_and_replayed(kernel, rebuno.now)
    assert live == replayed == dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    assert live.tzinfo is dt.UTC or live.utcoffset() == dt.timedelta(0)


def test_uuid4_and_random_are_what_they_say(kernel: Kernel) -> None:
    """Each call another one."""

    def handler() -> list[Any]:
        ids = [rebuno.uuid4() for _ in range(3)]
        assert all(isinstance(it, uuid.UUID) and it.version == 4 for it in ids)
        numbers = [rebuno.random() for _ in range(3)]
        assert all(0 <= it < 1 for it in numbers)
        return [len(set(ids)), len(set(numbers))]

    assert rebuno.run(handler, kernel=kernel) == [3, 3]


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_named_ones_are_never_shifted(kernel: Kernel, ask: Callable[..., Any]) -> None:
    """Other code asks before it, in another order: its answer stays; unnamed ones count."""
    got: list[Any] = []

    def first() -> None:
        got.extend([ask(), ask(name="mine"), ask(name="yours")])
        raise KeyboardInterrupt

    def changed() -> None:
        got.extend([ask(name="yours"), ask(name="new"), ask(name="mine"), ask()])

    with pytest.raises(KeyboardInterrupt):
        rebuno.run(first, key="k", agent="a", kernel=kernel)
    rebuno.run(changed, key="k", agent="a", kernel=kernel)
    unnamed, mine, yours, *later = got
    assert [later[0], later[2], later[3]] == [yours, mine, unnamed]


@pytest.mark.parametrize("ask", [*ASKED.values(), lambda **_: rebuno.sleep(1)])
def test_outside_an_execution_they_say_so(ask: Callable[..., Any]) -> None:
    """As any effect does."""
    with pytest.raises(NoActiveExecution):
        ask()


@pytest.mark.parametrize("ask", [*ASKED.values(), lambda name: rebuno.sleep(1, name=name)])
def test_a_name_is_a_text(kernel: Kernel, ask: Callable[..., Any]) -> None:
    """Nothing else names a step."""
    with pytest.raises(ExecutionFailed, match="name must be a text"):
        rebuno.run(lambda: ask(name=5), agent="a", kernel=kernel)


# -- sleep


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed(tmp_path: Path, clock: ManualClock) -> Iterator[Kernel]:
    with Kernel(tmp_path / "timed.db", clock=clock) as kernel:
        yield kernel


def test_a_sleep_takes_its_time_once(kernel: Kernel) -> None:
    """The replay does not sleep again."""

    def slept() -> float:
        started = time.monotonic()
        rebuno.sleep(0.2)
        return time.monotonic() - started

    live, replayed = live_and_replayed(kernel, slept)
    assert live >= 0.2
    assert replayed < 0.2
    step = only_step(kernel)
    assert (step.kind, step.target, step.args) == ("local", "sleep", {"seconds": 0.2})
    assert (step.status, step.result) == ("succeeded", None)


@pytest.mark.parametrize("name", [None, "a name"])
def test_a_resumed_sleep_waits_only_for_what_is_left(
    timed: Kernel, clock: ManualClock, name: str | None
) -> None:
    """By the kernel's clock: what passed while nobody ran it counts."""
    execution_id = created(timed)
    slept: list[int] = []

    def handler() -> None:
        rebuno.sleep(100, name=name)
        slept.append(1)

    interrupted_while_sleeping(timed, execution_id, handler)
    assert slept == []
    clock.advance(99.9)
    outcome = attempt(timed, execution_id, handler)
    assert (outcome.status, slept) == ("completed", [1])


def interrupted_while_sleeping(
    kernel: Kernel, execution_id: str, handler: Callable[[], None]
) -> None:
    """An attempt that is ended by its host in the middle of its sleep."""
    contexts: list[Any] = []
    port = FaultyPort(kernel.agent)
    port.parks = False

    def watched() -> None:
        contexts.append(rebuno.execution())
        handler()

    with background(lambda: attempt(kernel, execution_id, watched, port=port)) as thread:
        wait_until(
            lambda: any(it.status == "executing" for it in kernel.list_steps(execution_id)),
            "the sleep",
        )
        contexts[0]._lease.end("as a test says")
        assert thread.result().status == "lease_superseded"
    claimed_key = contexts[0]._lease.key
    kernel.agent.release(claimed_key)


def test_a_sleep_of_nothing_is_a_step_all_the_same(kernel: Kernel) -> None:
    """It ends at once."""
    rebuno.run(lambda: rebuno.sleep(0), agent="a", kernel=kernel)
    assert only_step(kernel).status == "succeeded"


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), 10**400, "5", None, True])
def test_what_is_no_time_to_sleep_is_refused(kernel: Kernel, seconds: Any) -> None:
    """Before anything is recorded."""
    with pytest.raises(ExecutionFailed, match=f"seconds must be a number.*{seconds!r}"):
        rebuno.run(lambda: rebuno.sleep(seconds), agent="a", kernel=kernel)


def test_sleeps_of_different_times_are_not_shifted(kernel: Kernel) -> None:
    """Those without a name are told apart by their seconds."""

    def first() -> None:
        rebuno.sleep(0.01)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rebuno.run(first, key="k", agent="a", kernel=kernel)
    rebuno.run(lambda: (rebuno.sleep(0.02), rebuno.sleep(0.01)), key="k", agent="a", kernel=kernel)
    execution_id = kernel.list().executions[0].id
    assert len(kernel.list_steps(execution_id)) == 2


def test_sleeps_in_threads_go_on_at_once(kernel: Kernel) -> None:
    """One does not hold another up."""

    def handler() -> float:
        started = time.monotonic()
        rebuno.parallel([(rebuno.sleep, 0.3), (rebuno.sleep, 0.3), (rebuno.sleep, 0.31)])
        return time.monotonic() - started

    assert 0.3 <= rebuno.run(handler, kernel=kernel) < 0.85


def test_a_sleep_ends_as_soon_as_the_attempt_does(kernel: Kernel) -> None:
    """The step stays open, for the attempt that goes on with it."""
    execution_id = created(kernel)
    started = time.monotonic()
    interrupted_while_sleeping(kernel, execution_id, lambda: rebuno.sleep(60))
    assert time.monotonic() - started < 20
    [step] = kernel.list_steps(execution_id)
    assert step.status == "executing"
