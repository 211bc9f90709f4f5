"""Executions that sleep in the file: when they wake, whatever happens meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from rebuno_sync.clock import ManualClock
from rebuno_sync.errors import ExecutionCancelled
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import LeaseKey, Proposal, Wake

from .moves import AGENT, attempt, kinds, start


def sleep(kernel: Kernel, lease: LeaseKey, seconds: float) -> str:
    """Park the attempt; the step that it is."""
    step_id = kernel.agent.submit(lease, Proposal("local", "sleep", "{}")).step_id
    assert kernel.agent.suspend(lease, Wake(step_id, seconds))
    return step_id


def asleep(kernel: Kernel, seconds: float) -> str:
    lease = start(kernel)
    sleep(kernel, lease, seconds)
    return lease.execution_id


def awake(kernel: Kernel, execution_id: str) -> bool:
    return kernel.get(execution_id).status == "running"


def test_c20_a_deadline_fires_while_an_execution_sleeps(path: Path) -> None:
    """Two seconds after its creation, though it would sleep for an hour."""
    with Kernel(path, deadline=2.0) as kernel:
        kernel.register_agent(AGENT)
        begun = kernel.monotonic()
        execution_id = asleep(kernel, 3600)
        with pytest.raises(ExecutionCancelled) as caught:
            kernel.wait(execution_id, timeout=10)
        assert caught.value.reason == "deadline_exceeded"
        assert 1.8 < kernel.monotonic() - begun < 2.6


def test_c36_a_stepped_wall_clock_wakes_nobody(kernel: Kernel, clock: ManualClock) -> None:
    """An hour ahead, then two back: each sleeps its time out, in the order of their seconds."""
    long, short = asleep(kernel, 200), asleep(kernel, 100)
    clock.step_wall(3600)
    assert not awake(kernel, long)
    assert not awake(kernel, short)
    clock.step_wall(-7200)
    clock.advance(99)
    assert not awake(kernel, short)
    clock.advance(2)
    assert awake(kernel, short)
    assert not awake(kernel, long)
    clock.advance(99)
    assert awake(kernel, long)


def test_after_a_reboot_a_sleep_keeps_its_wall_time(path: Path, clock: ManualClock) -> None:
    """The machine's clocks begin anew; what passed while it was off counts."""
    with Kernel(path, clock=clock) as kernel:
        kernel.register_agent(AGENT)
        execution_id = asleep(kernel, 600)
    clock.advance(590)
    clock.reboot("boot-2")
    with Kernel(path, clock=clock) as kernel:
        assert not awake(kernel, execution_id)
        clock.advance(10)
        assert awake(kernel, execution_id)


def test_a_sleep_ends_while_no_kernel_runs(path: Path, clock: ManualClock) -> None:
    """It is in the file: whoever opens it next finds it over."""
    with Kernel(path, clock=clock) as kernel:
        kernel.register_agent(AGENT)
        execution_id = asleep(kernel, 10)
    clock.advance(10)
    with Kernel(path, clock=clock) as kernel:
        assert attempt(kernel, execution_id).attempt == 1
        assert kinds(kernel, execution_id)[-4:] == [
            *("step.succeeded", "execution.resumed", "dispatch.queued", "dispatch.acked")
        ]


def test_many_wake_together(kernel: Kernel, clock: ManualClock) -> None:
    """All that are due, in a few looks, and nobody else."""
    due = [asleep(kernel, 10) for _ in range(600)]
    later = asleep(kernel, 11)
    clock.advance(10)
    for _ in range(3):
        kernel.get(later)
    assert all(awake(kernel, execution_id) for execution_id in due)
    assert not awake(kernel, later)


def test_whoever_delivers_sleeps_until_the_first_is_due(kernel: Kernel, clock: ManualClock) -> None:
    """The round says how long nothing is to be done; then it claims."""
    taken: list[LeaseKey] = []
    asleep(kernel, 100)
    execution_id = asleep(kernel, 50)
    dispatcher = kernel.dispatcher()
    dispatcher.host(AGENT, lambda lease, _: bool(taken.append(lease)) or True)
    assert dispatcher.dispatch_once() == pytest.approx(50)
    clock.advance(20)
    assert dispatcher.dispatch_once() == pytest.approx(30)
    assert taken == []
    clock.advance(30)
    assert dispatcher.dispatch_once() <= 50
    assert dispatcher.join(20)
    assert [lease.execution_id for lease in taken] == [execution_id]


def test_an_execution_that_ended_wakes_no_more(kernel: Kernel, clock: ManualClock) -> None:
    """Nothing of it is left among the timers."""
    execution_id = asleep(kernel, 10)
    kernel.cancel(execution_id)
    assert kernel.dispatcher().dispatch_once() > 0.1
    clock.advance(10)
    assert kernel.get(execution_id).status == "cancelled"
    assert kinds(kernel, execution_id)[-1] == "step.cancelled"


def test_a_sleep_beyond_all_time_is_for_ever(kernel: Kernel, clock: ManualClock) -> None:
    """Whatever number of seconds it is given."""
    execution_id = asleep(kernel, 1e300)
    clock.advance(9e8)
    assert not awake(kernel, execution_id)


def test_a_sleep_that_is_asked_for_again_counts_anew(kernel: Kernel, clock: ManualClock) -> None:
    """An attempt that was resumed by something else knows what is left, and sleeps that out."""
    lease = start(kernel)
    asking = kernel.agent.submit(lease, Proposal("tool_call", "ask", "{}")).step_id
    spawned_by = {"execution_id": lease.execution_id, "step_id": asking}
    child = kernel.create(AGENT, spawned_by=spawned_by)
    step_id = sleep(kernel, lease, 50)
    clock.advance(20)
    kernel.agent.complete(attempt(kernel, child.id), "1")
    again = attempt(kernel, lease.execution_id)
    assert sleep(kernel, again, 30) == step_id
    clock.advance(29)
    assert not awake(kernel, lease.execution_id)
    clock.advance(1)
    assert awake(kernel, lease.execution_id)
    assert kinds(kernel, lease.execution_id).count("step.succeeded") == 2
