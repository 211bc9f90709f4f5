"""Leases: one attempt at a time, renewed while it lives, noticed when it is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.attempts import attempt, background, claimed, created
from support.children import ChildScript
from support.faulty_port import FaultyPort
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync import errors
from rebuno_sync.clock import ManualClock
from rebuno_sync.errors import LeaseSuperseded, NoActiveExecution
from rebuno_sync.heartbeat import Lease, Renewer
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import LeaseKey

PROGRAMS = Path(__file__).parent / "programs"
LEASE_SECONDS = 0.6


# -- C6


@pytest.mark.slow
def test_c6_a_tool_that_blocks_for_longer_than_a_lease_runs_once(tmp_path: Path) -> None:
    """Two workers, a body of more than three leases: the heartbeat keeps the second one out."""
    lease_seconds = 2.0  # A heartbeat may come late on a busy machine, by two thirds of it.
    bodies: list[float] = []

    @rebuno.tool
    def slow() -> int:
        bodies.append(time.monotonic())
        threading.Event().wait(lease_seconds * 3.5)
        return len(bodies)

    def handler() -> int:
        return slow()

    with Kernel(tmp_path / "kernel.db", lease_timeout=lease_seconds) as kernel:

        def work() -> int:
            return rebuno.run(handler, key="one", kernel=kernel)

        with background(work) as first, background(work) as second:
            pass
        assert (first.result(), second.result()) == (1, 1)
        assert len(bodies) == 1
        events = kernel.events(kernel.list().executions[0].id)
        assert [event.type for event in events].count("dispatch.acked") == 1


def test_c6_without_heartbeats_a_second_worker_starts_after_the_lease_and_fences_the_first(
    tmp_path: Path,
) -> None:
    """It waits for the lease, not for the first one's thread; the first one's result is refused and
    every primitive that it tries after that raises."""
    stopped = Renewer()
    stopped.stop()
    in_first, second_has_claimed = threading.Event(), threading.Event()
    results: list[int] = []
    raised: list[type[BaseException]] = []

    @rebuno.tool
    def slow() -> int:
        number = rebuno.execution().dispatch_attempt
        if number == 1:
            in_first.set()
            second_has_claimed.wait(20)
        return number

    def handler() -> None:
        for effect in (slow, slow):
            try:
                results.append(effect())
            except errors.Signal as signal:
                raised.append(type(signal))

    with Kernel(tmp_path / "kernel.db", lease_timeout=LEASE_SECONDS) as kernel:
        execution_id = created(kernel)
        started = time.monotonic()
        with background(lambda: attempt(kernel, execution_id, handler, renewer=stopped)) as first:
            in_first.wait(20)
            assert kernel.claim(execution_id) is None, "the lease holds"
            claim = wait_until(lambda: kernel.claim(execution_id), "the second claim")
            assert LEASE_SECONDS - 0.1 < time.monotonic() - started < LEASE_SECONDS + 5
            assert first.is_alive()
            second_has_claimed.set()
            assert first.result().status == "lease_superseded"
        assert raised == [LeaseSuperseded, LeaseSuperseded]
        [step] = kernel.list_steps(execution_id)
        assert step.status == "executing", "the first one's result was refused"
        kernel.agent.release(claim.lease)
        assert attempt(kernel, execution_id, handler).status == "completed"
        assert results == [3, 3]
        assert kernel.get_step(execution_id, step.step_id).result == 3


# -- the renewer, with time moved by hand


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def kernel(tmp_path: Path, clock: ManualClock) -> Iterator[Kernel]:
    with Kernel(tmp_path / "kernel.db", clock=clock, lease_timeout=60) as kernel:
        yield kernel


class OfThisThread(ManualClock):
    """A clock that stands still for other threads: the renewer's own thread finds nothing due."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock
        self._start = clock.monotonic()
        self._thread = threading.current_thread()

    def monotonic(self) -> float:
        mine = threading.current_thread() is self._thread
        return self._clock.monotonic() if mine else self._start


@pytest.fixture
def renewer(clock: ManualClock) -> Iterator[Renewer]:
    renewer = Renewer(OfThisThread(clock))
    yield renewer
    renewer.stop()


def kept(kernel: Kernel, renewer: Renewer, port: FaultyPort) -> Lease:
    lease = claimed(kernel, created(kernel))
    renewer.keep(lease, port)
    return lease


def test_a_lease_is_renewed_every_third_of_its_time(
    kernel: Kernel, renewer: Renewer, clock: ManualClock
) -> None:
    """Not before it is due; and for as long as it is kept."""
    port = FaultyPort(kernel.agent)
    lease = kept(kernel, renewer, port)
    assert lease.interval == 20
    clock.advance(19)
    renewer.beat_once(clock.monotonic())
    assert port.calls == []
    for beats in range(1, 11):
        clock.advance(20)
        renewer.beat_once(clock.monotonic())
        assert port.count("renew") == beats
        assert lease.holds()
    assert kernel.claim(lease.key.execution_id) is None, "it is held"
    renewer.drop(lease)
    clock.advance(61)
    renewer.beat_once(clock.monotonic())
    assert port.count("renew") == 10
    assert not lease.holds()
    assert not lease.over, "nobody took it away"
    assert kernel.claim(lease.key.execution_id) is not None


def test_a_long_lease_is_renewed_every_thirty_seconds() -> None:
    """A third of a lease is no reason to be seen dead for an hour."""
    lease = Lease(LeaseKey("execution", "dispatch", 1), 3600.0)
    assert lease.interval == 30


def test_leases_of_one_kernel_that_are_due_together_are_renewed_together(
    kernel: Kernel, renewer: Renewer, clock: ManualClock
) -> None:
    """One call for all of them."""
    port = FaultyPort(kernel.agent)
    leases = [kept(kernel, renewer, port) for _ in range(5)]
    clock.advance(20)
    renewer.beat_once(clock.monotonic())
    assert port.calls == ["renew"]
    clock.advance(50)
    assert all(lease.holds() for lease in leases)


def test_a_refused_beat_sets_the_flag(kernel: Kernel, renewer: Renewer, clock: ManualClock) -> None:
    """Cancelled: the attempt learns it by its next heartbeat, the others go on."""
    port = FaultyPort(kernel.agent)
    lost, held = kept(kernel, renewer, port), kept(kernel, renewer, port)
    kernel.cancel(lost.key.execution_id)
    assert not lost.over
    clock.advance(20)
    renewer.beat_once(clock.monotonic())
    assert lost.over
    assert not lost.holds()
    assert held.holds()
    clock.advance(20)
    renewer.beat_once(clock.monotonic())
    assert held.holds()
    assert port.count("renew") == 2


def test_a_lost_beat_is_tried_again_after_a_second(
    kernel: Kernel, renewer: Renewer, clock: ManualClock
) -> None:
    """Unknown is not lost: the lease holds until its time is over."""
    port = FaultyPort(kernel.agent)
    lease = kept(kernel, renewer, port)
    port.lose_request("renew", times=3)
    clock.advance(20)
    for beats in (1, 2, 3, 4):
        renewer.beat_once(clock.monotonic())
        assert port.count("renew") == beats
        assert lease.holds()
        clock.advance(1)
    clock.advance(58)
    assert lease.holds(), "the fourth one was accepted"


def test_a_full_lease_without_an_accepted_beat_is_lost(
    kernel: Kernel, renewer: Renewer, clock: ManualClock
) -> None:
    """The flag is set by this machine's own clock; the kernel need not be reached for it."""
    port = FaultyPort(kernel.agent)
    lease = kept(kernel, renewer, port)
    port.lose_request("renew", times=1000)
    clock.advance(20)
    for _ in range(39):
        renewer.beat_once(clock.monotonic())
        clock.advance(1)
        assert not lease.over
    clock.advance(1)
    renewer.beat_once(clock.monotonic())
    assert lease.over


def test_a_beat_counts_from_when_it_was_sent(
    kernel: Kernel, renewer: Renewer, clock: ManualClock
) -> None:
    """An answer that takes long must not make the lease longer than the kernel knows it."""
    port = FaultyPort(kernel.agent)
    lease = kept(kernel, renewer, port)
    clock.advance(20)
    port.after("renew", lambda: clock.advance(30))
    renewer.beat_once(clock.monotonic())
    clock.advance(29)
    assert lease.holds()
    clock.advance(1)
    assert not lease.holds()


def test_a_kernel_that_breaks_its_word_and_raises_costs_no_lease_its_renewal(
    kernel: Kernel, renewer: Renewer, clock: ManualClock
) -> None:
    """Whatever is raised is an unknown answer, tried again like one."""
    port = FaultyPort(kernel.agent)
    lease = kept(kernel, renewer, port)
    port.refuse("renew", ValueError("a bug"))
    clock.advance(20)
    renewer.beat_once(clock.monotonic())
    clock.advance(1)
    renewer.beat_once(clock.monotonic())
    assert port.count("renew") == 2
    clock.advance(58)
    assert lease.holds()


def test_nothing_is_renewed_after_stop(
    kernel: Kernel, renewer: Renewer, clock: ManualClock
) -> None:
    """Leases that are held run out, later ones are not kept."""
    port = FaultyPort(kernel.agent)
    kept(kernel, renewer, port)
    renewer.stop()
    kept(kernel, renewer, port)
    clock.advance(30)
    renewer.beat_once(clock.monotonic())
    assert port.calls == []


# -- on_cancel


def test_callbacks_of_on_cancel_are_called_once_when_the_lease_ends(kernel: Kernel) -> None:
    """From another thread; later ones at once; one that fails or blocks holds up nobody."""
    called: list[str] = []
    all_called, block = threading.Event(), threading.Event()

    def last() -> None:
        called.append("last")
        all_called.set()

    def handler() -> None:
        context = rebuno.execution()
        context.on_cancel(lambda: block.wait(20) and None)
        context.on_cancel(lambda: called.index("no such"))
        context.on_cancel(last)
        kernel.cancel(context.id)
        with pytest.raises(errors.Signal):
            rebuno.step("late", lambda: 1)
        context._lease.end()
        context._lease.end()
        assert all_called.wait(20)
        context.on_cancel(lambda: called.append("at once"))

    try:
        attempt(kernel, created(kernel), handler)
    finally:
        block.set()
    assert called == ["last", "at once"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_callback_that_raises_a_signal_does_not_end_the_heartbeat(tmp_path: Path) -> None:
    """A callback may well call ``check()``: the leases of the others are renewed all the same."""
    checked = threading.Event()

    def handler() -> None:
        context = rebuno.execution()

        def callback() -> None:
            try:
                context.wait(0)
            finally:
                checked.set()

        context.on_cancel(callback)
        kernel.cancel(context.id)
        context.wait(20)

    with Kernel(tmp_path / "real-time.db", lease_timeout=LEASE_SECONDS) as kernel:
        renewer = Renewer()
        port = FaultyPort(kernel.agent)
        other = claimed(kernel, created(kernel))
        renewer.keep(other, port)
        outcome = attempt(kernel, created(kernel), handler, renewer=renewer)
        assert outcome.status == "terminated"
        assert checked.wait(20)
        beats = port.count("renew")
        wait_until(lambda: port.count("renew") > beats + 2, "further heartbeats")
        renewer.stop()


# -- the thread


def test_there_is_one_heartbeat_thread_in_a_process_and_none_at_import(tmp_path: Path) -> None:
    """Eight executions at once share it."""
    script = ChildScript(PROGRAMS / "one_heartbeat.py", tmp_path)
    with script.start(db=tmp_path / "kernel.db", fork=False) as child:
        child.result()
        names, counts = child.said
    assert names == ["MainThread"]
    assert counts == [1] * 8


def test_a_forked_child_starts_a_heartbeat_of_its_own(tmp_path: Path) -> None:
    """Threads do not survive a fork; the child's first execution starts one."""
    options = ("-W", "error", "-W", "ignore::DeprecationWarning")  # 3.12 warns of threads at a fork
    script = ChildScript(PROGRAMS / "one_heartbeat.py", tmp_path, options=options)
    assert script.run(db=tmp_path / "kernel.db", fork=True) == 0


# -- starting a newer attempt


def test_a_newer_attempt_does_not_wait_for_the_older_ones_thread(
    kernel: Kernel, clock: ManualClock
) -> None:
    """A thread that will not stop is fenced and left alone."""
    stuck, release = threading.Event(), threading.Event()
    stopped = Renewer(clock)
    stopped.stop()
    errors_of_the_old: list[BaseException] = []

    @rebuno.tool
    def hang() -> str:
        if not stuck.is_set():
            stuck.set()
            release.wait(20)
            try:
                rebuno.step("inside", lambda: 1)
            except BaseException as error:
                errors_of_the_old.append(error)
                raise
        return "done"

    def handler() -> str:
        return hang()

    execution_id = created(kernel)
    with background(lambda: attempt(kernel, execution_id, handler, renewer=stopped)) as old:
        stuck.wait(20)
        clock.advance(61)
        outcome = attempt(kernel, execution_id, handler)
        assert (outcome.status, outcome.output) == ("completed", "done")
        assert old.is_alive()
        release.set()
        assert old.result().status == "terminated"
    assert [type(error) for error in errors_of_the_old] == [errors.Terminated]
    assert [step.target for step in kernel.list_steps(execution_id)] == ["hang"]


def test_a_thread_that_outlives_its_handler_can_perform_nothing(kernel: Kernel) -> None:
    """Also when it was carried: the attempt that it belonged to is over."""
    go_on = threading.Event()
    late: list[BaseException] = []

    def beside() -> None:
        go_on.wait(20)
        try:
            rebuno.step("late", lambda: 1)
        except BaseException as error:
            late.append(error)

    def handler() -> None:
        nonlocal thread
        thread = threading.Thread(target=rebuno.carry(beside))
        thread.start()

    thread: threading.Thread
    execution_id = created(kernel)
    assert attempt(kernel, execution_id, handler).status == "completed"
    go_on.set()
    thread.join(20)
    assert [type(error) for error in late] == [NoActiveExecution]
    assert kernel.list_steps(execution_id) == []
