"""Deadlines and leases, while the clocks do what clocks do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from rebuno_sync.clock import ManualClock
from rebuno_sync.errors import APIError, ExecutionCancelled
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import LeaseKey, Renewal

from .moves import AGENT, ask_for, attempt, call, kinds, once, perform, start

DEADLINE = 600.0
OVER = "execution_terminal"


@pytest.fixture
def timed(path: Path, clock: ManualClock) -> Iterator[Kernel]:
    """A kernel whose executions have ten minutes, and whose leases outlast them."""
    with Kernel(path, deadline=DEADLINE, lease_timeout=3600, clock=clock) as kernel:
        kernel.register_agent(AGENT)
        yield kernel


def _code(refused: Callable[[], object]) -> str:
    with pytest.raises(APIError) as caught:
        refused()
    return caught.value.code


NOTICES: dict[str, Callable[[Kernel, LeaseKey, str], object]] = {
    "get": lambda k, lease, _: k.get(lease.execution_id).status == "cancelled",
    "find": lambda k, lease, _: k.find(AGENT, "key").status == "cancelled",
    "list": lambda k, lease, _: k.list(status="cancelled").executions[0].id == lease.execution_id,
    "events": lambda k, lease, _: k.events(lease.execution_id)[-1].type == "step.cancelled",
    "list_steps": lambda k, lease, _: k.list_steps(lease.execution_id)[0].status.terminal,
    "get_step": lambda k, lease, step: k.get_step(lease.execution_id, step).status == "cancelled",
    "create with its key": lambda k, lease, _: (
        k.create(AGENT, idempotency_key="key").status == "cancelled"
    ),
    "cancel": lambda k, lease, _: _code(lambda: k.cancel(lease.execution_id)) == "conflict",
    "claim": lambda k, lease, _: k.claim(lease.execution_id) is None,
    "submit new": lambda k, lease, _: k.agent.submit(lease, call("new")).decision == OVER,
    "submit recorded": lambda k, lease, _: k.agent.submit(lease, call("done")).decision == OVER,
    "submit open": lambda k, lease, _: k.agent.submit(lease, call("open")).decision == OVER,
    "complete_step": lambda k, lease, step: (
        k.agent.complete_step(lease, step, "1").decision == OVER
    ),
    "fail_step": lambda k, lease, step: k.agent.fail_step(lease, step, "1").decision == OVER,
    "retrying": lambda k, lease, step: k.agent.retrying(lease, step, 1, "1", 1.0).decision == OVER,
    "begin_try": lambda k, lease, step: k.agent.begin_try(lease, step, 2).decision == OVER,
    "renew": lambda k, lease, _: k.agent.renew([lease]) == [Renewal.SUPERSEDED],
    "complete": lambda k, lease, _: _code(lambda: k.agent.complete(lease, "1")) == OVER,
    "fail": lambda k, lease, _: _code(lambda: k.agent.fail(lease, "no")) == OVER,
    "release": lambda k, lease, _: _code(lambda: k.agent.release(lease)) == OVER,
    "agent's get_execution": lambda k, lease, _: (
        k.agent.get_execution(lease.execution_id).status == "cancelled"
    ),
}


@pytest.mark.parametrize("notice", NOTICES)
def test_a_deadline_fires_on_whatever_comes_first(
    timed: Kernel, clock: ManualClock, notice: str
) -> None:
    """The first to look or to write after a deadline finds the execution cancelled by it,
    for good.
    """
    execution_id = timed.create(AGENT, idempotency_key="key").id
    first = attempt(timed, execution_id)
    done = perform(timed, first, call("done"))
    timed.agent.release(first)
    lease = attempt(timed, execution_id)
    step_id = timed.agent.submit(lease, call("open")).step_id
    clock.advance(DEADLINE)
    assert NOTICES[notice](timed, lease, step_id)
    # Nobody has looked through the operator's methods yet, so this is what was committed.
    with timed._store().database.reading() as db:
        stored = db.execute("SELECT status, failure_reason FROM executions").fetchall()
    assert stored == [("cancelled", "deadline_exceeded")]
    assert kinds(timed, execution_id)[-2:] == ["execution.cancelled", "step.cancelled"]
    assert timed.get_step(execution_id, done).status == "succeeded"


def test_a_deadline_ends_what_is_still_queued(timed: Kernel, clock: ManualClock) -> None:
    """An execution that nobody has claimed in time is cancelled, and is not claimed any more."""
    execution = timed.create(AGENT)
    clock.advance(DEADLINE)
    assert timed.claim(execution.id) is None
    ended = timed.get(execution.id)
    assert (ended.status, ended.failure_reason) == ("cancelled", "deadline_exceeded")
    assert kinds(timed, execution.id)[3:] == ["execution.cancelled"]


def test_a_deadline_counts_while_an_execution_waits_for_its_session(
    timed: Kernel, clock: ManualClock
) -> None:
    """It is cancelled without having begun, and the one that comes after it begins (protocol.md
    9.2).
    """
    first, late = (timed.create(AGENT, session="s") for _ in range(2))
    lease = attempt(timed, first.id)
    clock.advance(DEADLINE / 2)
    last = timed.create(AGENT, session="s")
    timed.agent.complete(lease, "null")
    assert timed.get(late.id).status == "running"
    clock.advance(DEADLINE / 2)
    ended = timed.get(late.id)
    assert (ended.status, ended.failure_reason) == ("cancelled", "deadline_exceeded")
    assert timed.get(last.id).status == "running"
    waiting = timed.create(AGENT, session="s")
    clock.advance(DEADLINE / 2)
    assert timed.get(last.id).status == "cancelled"
    assert timed.get(waiting.id).status == "running"


def test_a_deadline_that_passes_before_a_session_gets_there(
    timed: Kernel, clock: ManualClock
) -> None:
    """Nothing of it was ever started."""
    timed.create(AGENT, session="s")
    clock.advance(1)
    waiting = timed.create(AGENT, session="s")
    clock.advance(DEADLINE)
    assert timed.get(waiting.id).failure_reason == "deadline_exceeded"
    assert kinds(timed, waiting.id) == ["execution.created", "execution.cancelled"]


def test_a_deadline_closes_what_was_asked(timed: Kernel, clock: ManualClock) -> None:
    """As a cancel does (protocol.md 9.4)."""
    ask_for(timed, "charge")
    lease = start(timed)
    open_step = timed.agent.submit(lease, call("open")).step_id
    approval_id = timed.agent.submit(lease, call("charge")).approval_id
    clock.advance(DEADLINE)
    closed = timed.get_approval(approval_id)
    assert (closed.status, closed.rationale) == ("expired", "execution_cancelled")
    assert kinds(timed, lease.execution_id)[-4:] == [
        "execution.cancelled",
        "approval.expired",
        "step.denied",
        "step.cancelled",
    ]
    assert timed.get_step(lease.execution_id, open_step).error == {"reason": "execution_cancelled"}


def test_before_its_deadline_nothing_happens(timed: Kernel, clock: ManualClock) -> None:
    """A moment before it an execution still completes."""
    lease = start(timed)
    clock.advance(DEADLINE - 0.001)
    assert timed.get(lease.execution_id).status == "running"
    timed.agent.complete(lease, "1")
    clock.advance(DEADLINE)
    assert timed.get(lease.execution_id).status == "completed"


def test_a_deadline_is_shown(timed: Kernel, clock: ManualClock) -> None:
    """It is on the execution, and in its first two events as text."""
    execution = timed.create(AGENT)
    assert execution.deadline_at == execution.created_at + timedelta(seconds=DEADLINE)
    created, started, queued = timed.events(execution.id)
    text = execution.deadline_at.isoformat().replace("+00:00", "Z")
    assert created.payload["deadline_at"] == started.payload["deadline_at"] == text
    assert "deadline_at" not in queued.payload


def test_waiting_notices_a_deadline(path: Path) -> None:
    """Whoever waits is told when the deadline passes, though nothing is written until then."""
    with Kernel(path, deadline=0.2) as kernel:
        kernel.register_agent(AGENT)
        execution = kernel.create(AGENT)
        with pytest.raises(ExecutionCancelled) as caught:
            kernel.wait(execution.id, timeout=20)
    assert caught.value.reason == "deadline_exceeded"


def test_many_deadlines_fire_together(timed: Kernel, clock: ManualClock) -> None:
    """One look ends everything that is due, and nothing else."""
    early = [timed.create(AGENT).id for _ in range(30)]
    clock.advance(1)
    late = timed.create(AGENT).id
    clock.advance(DEADLINE - 1)
    assert timed.get(late).status == "running"
    assert {timed.get(execution_id).status for execution_id in early} == {"cancelled"}
    assert len(timed.list(status="cancelled").executions) == 30


@pytest.mark.parametrize("steps", [[3600], [3600, -7200], [-7200], [-7200, 3600]])
def test_c36_a_stepped_wall_clock_moves_no_lease(
    kernel: Kernel, clock: ManualClock, steps: list[float]
) -> None:
    """However the wall clock jumps, a lease ends when its seconds have passed, and not before."""
    lease = start(kernel)
    for step in steps:
        clock.step_wall(step)
        assert kernel.claim(lease.execution_id) is None
    clock.advance(119)
    assert kernel.claim(lease.execution_id) is None
    assert kernel.agent.renew([lease]) == [Renewal.ACCEPTED]
    clock.advance(119)
    for step in steps:
        clock.step_wall(step)
        assert kernel.claim(lease.execution_id) is None
    clock.advance(2)
    clock.step_wall(-3600)
    assert attempt(kernel, lease.execution_id).attempt == 2
    assert kernel.agent.renew([lease]) == [Renewal.SUPERSEDED]


def test_c36_timers_keep_their_order_when_the_wall_clock_jumps(
    timed: Kernel, clock: ManualClock
) -> None:
    """Deadlines and back-offs set before, between and after jumps fire in the order of their
    seconds.
    """
    first = timed.create(AGENT).id
    clock.advance(10)
    clock.step_wall(3600)
    second = timed.create(AGENT).id
    clock.advance(10)
    clock.step_wall(-7200)
    third = timed.create(AGENT).id
    resting = start(timed)
    timed.agent.release(resting, interrupted=True)
    clock.step_wall(3600)
    assert timed.claim(resting.execution_id) is None
    clock.advance(1.3)
    assert timed.claim(resting.execution_id) is not None
    clock.advance(DEADLINE - 22.3)
    ended = []
    for _ in range(3):
        assert len([e for e in (first, second, third) if timed.get(e).status.terminal]) == len(
            ended
        )
        clock.advance(10 if ended else 1)
        ended += [e for e in (first, second, third) if e not in ended and _ended(timed, e)]
    assert ended == [first, second, third]


def _ended(kernel: Kernel, execution_id: str) -> bool:
    return kernel.get(execution_id).status.terminal


def test_c36_events_keep_their_numbers_when_the_wall_clock_jumps(
    kernel: Kernel, clock: ManualClock
) -> None:
    """The log's order is its numbers; its times are only for people to read."""
    lease = start(kernel)
    for step in (3600, -7200):
        clock.step_wall(step)
        perform(kernel, lease, call("work", step))
    kernel.agent.complete(lease, "1")
    events = kernel.events(lease.execution_id)
    assert [event.event_seq for event in events] == list(range(1, len(events) + 1))
    assert events[-1].type == "execution.completed"
    assert events[-1].occurred_at < events[0].occurred_at


def test_after_a_reboot_every_lease_is_free(path: Path, clock: ManualClock) -> None:
    """Opening the file under a new boot id reclaims all leases at once, whatever the clocks say."""
    with Kernel(path, clock=clock) as kernel:
        kernel.register_agent(AGENT)
        leases = [start(kernel) for _ in range(3)]
        orphan = kernel.agent.submit(leases[0], once()).step_id
        before = kinds(kernel, leases[0].execution_id)
    clock.reboot("boot-2")
    with Kernel(path, clock=clock) as kernel:
        assert kernel.agent.renew(leases) == [Renewal.SUPERSEDED] * 3
        assert kinds(kernel, leases[0].execution_id) == before
        for lease in leases:
            assert attempt(kernel, lease.execution_id) == lease._replace(attempt=2)
        met = kernel.agent.submit(leases[0]._replace(attempt=2), once())
        assert (met.step_id, met.error["reason"]) == (orphan, "indeterminate")


def test_closing_does_not_end_a_lease_that_a_handler_may_still_run_under(
    path: Path, clock: ManualClock
) -> None:
    """A thread may be in the middle of a body when its kernel is closed: the lease runs out."""
    with Kernel(path, lease_timeout=10, clock=clock) as kernel:
        kernel.register_agent(AGENT)
        lease = start(kernel)
    with Kernel(path, lease_timeout=10, clock=clock) as kernel:
        assert kernel.claim(lease.execution_id) is None
        clock.advance(10.1)
        assert attempt(kernel, lease.execution_id) == lease._replace(attempt=2)


@pytest.mark.parametrize("off", [0.0, 1000.0, 5000.0])
def test_after_a_reboot_deadlines_keep_their_wall_time(
    path: Path, clock: ManualClock, off: float
) -> None:
    """The hours in which the machine was off count; what was due in them is due at once."""
    with Kernel(path, deadline=3600, clock=clock) as kernel:
        kernel.register_agent(AGENT)
        execution = kernel.create(AGENT)
    clock.reboot("boot-2")
    clock.step_wall(off)
    with Kernel(path, deadline=3600, clock=clock) as kernel:
        if off < 3600:
            assert kernel.get(execution.id).status == "running"
            clock.advance(3599 - off)
            assert kernel.get(execution.id).status == "running"
            clock.advance(2)
        ended = kernel.get(execution.id)
        assert (ended.status, ended.failure_reason) == ("cancelled", "deadline_exceeded")
        assert ended.deadline_at == execution.deadline_at


def test_after_a_reboot_a_back_off_is_still_waited_for(path: Path, clock: ManualClock) -> None:
    """What was to be retried later is retried then, on the wall's time."""
    with Kernel(path, clock=clock) as kernel:
        kernel.register_agent(AGENT)
        lease = start(kernel)
        kernel.agent.release(lease, interrupted=True)
    clock.reboot("boot-2")
    with Kernel(path, clock=clock) as kernel:
        assert kernel.claim(lease.execution_id) is None
        clock.advance(1.3)
        assert kernel.claim(lease.execution_id) is not None


def test_after_a_reboot_a_try_still_waits_for_its_time(path: Path, clock: ManualClock) -> None:
    """The hours in which the machine was off are taken from the back-off between two tries."""
    with Kernel(path, clock=clock) as kernel:
        kernel.register_agent(AGENT)
        lease = start(kernel)
        step_id = kernel.agent.submit(lease, call("work")).step_id
        kernel.agent.retrying(lease, step_id, 1, "null", 3600.0)
    clock.reboot("boot-2")
    clock.step_wall(600.0)
    with Kernel(path, clock=clock) as kernel:
        met = kernel.agent.submit(attempt(kernel, lease.execution_id), call("work"))
        assert (met.attempt, met.retry_in) == (1, pytest.approx(3000.0))


def test_opening_again_under_the_same_boot_keeps_timers(path: Path, clock: ManualClock) -> None:
    """Without a reboot the wall clock has no say, so a jump before opening moves nothing."""
    with Kernel(path, deadline=3600, clock=clock) as kernel:
        kernel.register_agent(AGENT)
        execution = kernel.create(AGENT)
    clock.step_wall(7200)
    with Kernel(path, deadline=3600, clock=clock) as kernel:
        assert kernel.get(execution.id).status == "running"
        clock.advance(3600)
        assert kernel.get(execution.id).status == "cancelled"
