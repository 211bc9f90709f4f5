"""Renewing leases of kernels elsewhere: many of them, slow ones, and the first heartbeat."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

import pytest
from support.attempts import background
from support.no_threads import no_threads
from support.stub_server import Ask, StubServer, hang_up, reply
from support.waiting import wait_until

from rebuno_sync.clock import ManualClock
from rebuno_sync.errors import NetworkError
from rebuno_sync.heartbeat import Lease, Renewer
from rebuno_sync.kernel_client import KernelClient
from rebuno_sync.types import LeaseKey, Renewal


@pytest.fixture
def renewer() -> Iterator[Renewer]:
    renewer = Renewer()
    yield renewer
    renewer.stop()


def lease(number: int = 0, seconds: float = 60.0, **options: float) -> Lease:
    return Lease(LeaseKey(f"execution-{number}", "dispatch", 1), seconds, **options)  # type: ignore[arg-type]


def accepted(number: int = 0, seconds: float = 60.0) -> Lease:
    """One that was accepted just now."""
    new = lease(number, seconds)
    new.accepted(new.now())
    return new


def client_of(server: StubServer) -> KernelClient:
    return KernelClient(server.url, "agent", "secret", timeout=20.0)


# -- several at once


def test_a_slow_kernel_delays_the_heartbeats_of_no_other(renewer: Renewer) -> None:
    """Each has its own senders."""
    stuck = threading.Event()

    def hang(ask: Ask, sock: object) -> bool:
        stuck.wait(20)
        return False

    with StubServer(hang) as slow, StubServer(reply(204)) as quick:
        slow_client, quick_client = client_of(slow), client_of(quick)
        for number in range(20):
            renewer.keep(accepted(number, 0.3), slow_client)
        wait_until(lambda: slow.asked, "a beat that hangs")
        kept = accepted(99, 0.6)
        renewer.keep(kept, quick_client)
        wait_until(lambda: len(quick.asked) >= 5, "beats of the other")
        assert kept.holds()
        stuck.set()


def test_many_leases_are_renewed_in_time_on_a_kernel_that_takes_them_one_by_one(
    renewer: Renewer,
) -> None:
    """Several beats are under way at once. The proportions of 1,000 leases of 30 s on a line of
    60 ms: here 100 leases of 3 s."""

    def late(ask: Ask, sock: object) -> bool:
        threading.Event().wait(0.06)
        return reply(204)(ask, sock)  # type: ignore[arg-type]

    with StubServer(late) as server:
        client = client_of(server)
        leases = [accepted(number, 3.0) for number in range(100)]
        started = time.monotonic()
        for each in leases:
            renewer.keep(each, client)
        wait_until(lambda: len(server.asked) >= 400, "four beats for each")
        assert time.monotonic() - started > 3.0, "they outlived their first term"
        assert all(each.holds() for each in leases)
        assert server.connections > 1


def test_leases_of_one_kernel_travel_together_where_it_can(renewer: Renewer) -> None:
    """Not more than a few dozen in one request."""
    with StubServer(reply(200, {"superseded": []})) as server:
        client = client_of(server)
        client.learn_extensions("leases")
        leases = [accepted(number, 0.9) for number in range(100)]
        for each in leases:
            renewer.keep(each, client)
        wait_until(lambda: len(server.asked) >= 20, "beats")
        assert all(ask.target == "/v0/leases" for ask in server.asked if len(ask.body) > 2)
        assert all(each.holds() for each in leases)


def test_a_lease_is_kept_once_however_often_it_is_asked(renewer: Renewer) -> None:
    with StubServer(reply(204)) as server:
        client, kept = client_of(server), accepted(0, 0.9)
        for _ in range(50):
            renewer.keep(kept, client)
        wait_until(lambda: len(server.asked) >= 2, "two beats")
        assert len(server.asked) <= 3


# -- in a hurry


def test_a_hurried_lease_is_asked_about_at_once_and_only_once(renewer: Renewer) -> None:
    """Its usual heartbeats go on from there."""
    with StubServer(reply(204)) as server:
        kept = accepted(0, 60.0)
        renewer.keep(kept, client_of(server))
        renewer.hurry(kept)
        wait_until(lambda: len(server.asked) == 1, "the beat")
        for _ in range(3):
            renewer.hurry(lease(7))  # One that is not kept.
        renewer.hurry(kept)
        wait_until(lambda: len(server.asked) == 2, "the second beat")
        assert len(renewer._due) <= 3


class Scripted:
    """A kernel whose heartbeats are answered as a test says; the rest of one is not asked."""

    renews_together = True

    def __init__(self, *answers: Renewal) -> None:
        self.answers = list(answers)
        self.beats = 0
        self.during: list[object] = []

    def renew(self, leases: Sequence[LeaseKey]) -> list[Renewal]:
        self.beats += 1
        for act in self.during:
            act()  # type: ignore[operator]
        self.during = []
        return [self.answers.pop(0) if self.answers else Renewal.ACCEPTED for _ in leases]


def test_a_hurry_that_comes_while_a_beat_is_under_way_is_not_forgotten() -> None:
    """That beat may have been answered before what the hurry is about."""
    clock = ManualClock()
    renewer, kernel = Renewer(clock), Scripted(Renewal.ACCEPTED, Renewal.SUPERSEDED)
    kept = Lease(LeaseKey("e", "d", 1), 60, measured_on=clock.boottime)
    kept.accepted(clock.boottime())
    renewer._thread = threading.current_thread()  # Time is kept by the test.
    renewer.keep(kept, kernel)  # type: ignore[arg-type]
    clock.advance(20)
    kernel.during = [lambda: renewer.hurry(kept)]
    renewer.beat_once(clock.monotonic())
    assert not kept.over
    renewer.beat_once(clock.monotonic())
    assert kernel.beats == 2
    assert kept.over


# -- the first heartbeat


def test_a_lease_that_came_by_webhook_does_not_hold_before_its_first_heartbeat() -> None:
    with StubServer(reply(204)) as server:
        new = lease()
        assert not new.holds()
        assert new.can_hold()
        renewer = Renewer()
        assert renewer.secure(new, client_of(server))
        assert new.holds()
        assert renewer.secure(new, client_of(server))
        assert len(server.asked) == 1, "one is enough"


def test_a_lease_that_was_never_accepted_expires_counted_from_its_receipt() -> None:
    """A captured webhook keeps nothing alive."""
    clock = ManualClock()
    new = Lease(LeaseKey("e", "d", 1), 60, measured_on=clock.boottime)
    clock.advance(59)
    assert new.can_hold()
    clock.advance(1)
    assert not new.can_hold()
    renewer, kernel = Renewer(clock), Scripted()
    assert not renewer.secure(new, kernel)  # type: ignore[arg-type]
    assert kernel.beats == 0, "not even asked for"


def test_the_first_heartbeat_is_asked_for_until_it_is_answered() -> None:
    """Unknown is neither yes nor no."""
    with StubServer(hang_up, reply(503), hang_up, reply(204)) as server:
        new = lease()
        assert Renewer().secure(new, client_of(server))
        assert len(server.asked) == 4


def test_a_first_heartbeat_that_is_refused_ends_the_lease() -> None:
    with StubServer(reply(409, {"code": "lease_superseded"})) as server:
        new = lease()
        assert not Renewer().secure(new, client_of(server))
        assert new.over


def test_the_first_heartbeat_is_asked_for_no_longer_than_the_lease_can_hold() -> None:
    with StubServer(hang_up) as server:
        new = lease(0, 0.5)
        with background(lambda: Renewer().secure(new, client_of(server))) as securing:
            assert securing.result(5) is False
        assert new.over


# -- insisting


def test_what_is_repeatable_is_repeated_while_the_lease_can_hold() -> None:
    """And what may have arrived is not, unless the caller says that it may be."""
    held = accepted()
    failures = [NetworkError("a", repeatable=True), NetworkError("b", repeatable=True)]

    def call() -> str:
        if failures:
            raise failures.pop()
        return "answer"

    assert held.insist(call, once_sent=False) == "answer"
    failures = [NetworkError("sent")]
    with pytest.raises(NetworkError, match="sent"):
        held.insist(call, once_sent=False)
    failures = [NetworkError("sent")]
    assert held.insist(call) == "answer"
    held.end("over")
    failures = [NetworkError("late", repeatable=True)]
    with pytest.raises(NetworkError, match="late"):
        held.insist(call, once_sent=False)
    assert held.reason == "over"


# -- no thread can be had


def test_a_lease_that_could_not_be_kept_is_kept_when_it_is_asked_again(renewer: Renewer) -> None:
    """What is refused for want of a thread leaves nothing behind that looks kept."""
    with StubServer(reply(204)) as server:
        short = accepted(seconds=0.3)
        with no_threads(), pytest.raises(RuntimeError, match="thread"):
            renewer.keep(short, client_of(server))
        renewer.keep(short, client_of(server))
        wait_until(lambda: len(server.asked) >= 2, "two heartbeats")


def test_heartbeats_go_on_once_there_are_threads_again(
    renewer: Renewer, caplog: pytest.LogCaptureFixture
) -> None:
    """All that were due meanwhile."""
    with StubServer(reply(204)) as server:
        client = client_of(server)
        leases = [accepted(number, seconds=10.0) for number in range(3)]
        for one in leases:
            renewer.keep(one, client)
        with no_threads():
            for one in leases:
                renewer.hurry(one)
            wait_until(lambda: "heartbeats wait" in caplog.text, "the refusal")
        wait_until(lambda: len(server.asked) >= 3, "a heartbeat of each")


def test_an_end_is_told_without_a_thread() -> None:
    """In the thread that finds it out, and to everybody who asked."""
    told: list[int] = []
    ending = accepted()
    for number in range(2):
        ending.on_end(lambda number=number: told.append(number))  # type: ignore[misc]
    with no_threads():
        ending.end("lost")
    assert told == [0, 1]


# -- one that hangs


def test_a_heartbeat_that_is_never_answered_does_not_cost_the_lease(renewer: Renewer) -> None:
    """The next one is sent in its time, on another connection."""
    stuck = threading.Event()
    first: list[Ask] = []

    def hang_once(ask: Ask, sock: object) -> bool:
        if not first:
            first.append(ask)
            stuck.wait(20)
            return False
        return reply(204)(ask, sock)  # type: ignore[arg-type]

    with StubServer(hang_once) as server:
        short = accepted(seconds=0.6)
        renewer.keep(short, client_of(server))
        wait_until(lambda: len(server.asked) >= 5, "more heartbeats")
        assert short.holds()
        stuck.set()
