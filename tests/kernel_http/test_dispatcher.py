"""What is delivered, when, and what becomes of an attempt that cannot be (protocol.md 4)."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.children import ChildScript
from support.labels import label
from support.receiver import Received, Receiver
from support.waiting import wait_until

from rebuno_sync.clock import ManualClock
from rebuno_sync.delivery import HttpDeliver
from rebuno_sync.errors import NetworkError
from rebuno_sync.kernel import Kernel
from rebuno_sync.signing import verify_body
from rebuno_sync.types import LeaseKey, Proposal

from .moves import Inbox, Sent, path_of, start, submit
from .wire import AGENT, OTHER, SECRET, Wire


def _events(kernel: Kernel, execution_id: str, kind: str) -> list[int]:
    """The attempts that events of a kind name."""
    return [event.payload["attempt"] for event in kernel.events(execution_id) if event.type == kind]


@pytest.fixture
def twice(tmp_path: Path, clock: ManualClock) -> Iterator[Kernel]:
    """A kernel that tries twice."""
    with Kernel(tmp_path / "twice.db", clock=clock, max_attempts=2) as kernel:
        kernel.register_agent(AGENT, webhook_url="http://agent/webhook", secret=SECRET)
        yield kernel


# -- what is sent


def test_the_webhook(kernel: Kernel, inbox: Inbox) -> None:
    """Compact JSON with its keys in their order, signed over the body; not a field more."""
    execution = kernel.create(AGENT)
    (sent,) = inbox.round()
    dispatch_id = sent.lease.dispatch_id
    assert sent.url == "http://agent/webhook"
    assert (
        sent.body
        == (
            f'{{"execution_id":"{execution.id}","dispatch_id":"{dispatch_id}",'
            '"dispatch_attempt":1,"lease_timeout_seconds":120}'
        ).encode()
    )
    names = [name for name, _ in sent.headers]
    assert names == [
        "Content-Type",
        "Rebuno-Signature",
        "Rebuno-Execution-Id",
        "Rebuno-Extensions",
    ]
    headers = dict(sent.headers)
    assert headers["Content-Type"] == "application/json"
    assert headers["Rebuno-Execution-Id"] == execution.id
    assert verify_body([SECRET], headers["Rebuno-Signature"], sent.body)


@pytest.mark.parametrize(("seconds", "sent"), [(0, "120"), (9, "120"), (10, "10"), (12.5, "12.5")])
def test_the_webhook_names_the_length_of_the_lease(
    kernel: Kernel, inbox: Inbox, seconds: float, sent: str
) -> None:
    """The agent's own, or the kernel's."""
    kernel.register_agent("timed", webhook_url="http://x", lease_timeout_seconds=seconds)
    kernel.create("timed")
    assert f'"lease_timeout_seconds":{sent}}}'.encode() in inbox.round()[0].body


def test_agents_without_a_webhook_are_left_to_their_hosts(kernel: Kernel, inbox: Inbox) -> None:
    kernel.register_agent("hosted")
    execution = kernel.create("hosted")
    assert inbox.round() == []
    assert kernel.claim(execution.id) is not None


# -- what an answer means


def test_the_back_off_doubles(kernel: Kernel, inbox: Inbox, clock: ManualClock) -> None:
    """1, 2, 4 and 8 seconds, and up to a quarter more; the fifth failure is the last."""
    inbox.answer = lambda _: 500
    kernel.create(AGENT)
    assert len(inbox.round()) == 1
    for seconds in (1, 2, 4, 8):
        clock.advance(seconds - 0.01)
        assert inbox.round() == []
        clock.advance(seconds * 0.25 + 0.02)
        assert len(inbox.round()) == 1
    clock.advance(60)
    assert inbox.round() == []


def test_an_agent_that_is_away_costs_nobody_an_attempt(twice: Kernel, clock: ManualClock) -> None:
    """Refused connections and 503s do not count for ten minutes: a redeployment kills nothing.
    After that they do."""
    inbox = Inbox(twice)

    def refuse(sent: Sent) -> int:
        if len(inbox.sent) % 2:
            return 503
        raise NetworkError("cannot connect", repeatable=True)

    inbox.answer = refuse
    execution = twice.create(AGENT)
    begun = clock.boottime()
    while twice.get(execution.id).status == "running":
        inbox.round()
        clock.advance(40)
        assert clock.boottime() - begun < 800
    assert clock.boottime() - begun > 600
    assert len(inbox.sent) > 10
    assert twice.get(execution.id).failure_reason == "dispatch_exhausted"


def test_an_agent_that_is_away_is_probed(kernel: Kernel, inbox: Inbox, clock: ManualClock) -> None:
    """One delivery a second, however much waits; when it is back, all of it goes out at once."""
    inbox.answer = lambda _: 503
    ids = {kernel.create(AGENT).id for _ in range(6)}
    inbox.round()
    first = len(inbox.sent)
    for _ in range(20):
        assert inbox.round() == []
    for number in range(1, 6):
        clock.advance(1)
        assert len(inbox.round()) == 1
        assert len(inbox.sent) == first + number
    inbox.answer = lambda _: 200
    clock.advance(1)
    taken: set[str] = set()
    for _ in range(6):
        taken |= {sent.lease.execution_id for sent in inbox.round()}
    assert taken == ids


@pytest.mark.parametrize("sign", ["registration", "metadata"])
def test_an_agent_that_says_it_is_there_is_served_at_once(
    kernel: Kernel, inbox: Inbox, clock: ManualClock, sign: str
) -> None:
    """What waits for its back-off is due when it registers anew or publishes its metadata."""
    inbox.answer = lambda _: 500
    kernel.create(AGENT)
    for _ in range(4):
        inbox.round()
        clock.advance(15)
    inbox.answer = lambda _: 200
    inbox.sent.clear()
    if sign == "registration":
        kernel.register_agent(AGENT, webhook_url="http://new", secret=SECRET)
    else:
        Wire(kernel, clock).act("PUT", f"/v0/agents/{AGENT}/metadata", b"{}")
    assert len(inbox.round()) == 1


def test_a_late_failure_harms_nobody(kernel: Kernel, inbox: Inbox) -> None:
    """A delivery whose answer comes when the execution has ended changes nothing."""

    def answer(sent: Sent) -> int:
        kernel.cancel(sent.lease.execution_id)
        return 500

    inbox.answer = answer
    execution = kernel.create(AGENT)
    inbox.round()
    assert kernel.events(execution.id)[-1].type == "execution.cancelled"


def _fails(with_: object) -> int:
    if isinstance(with_, Exception):
        raise with_
    assert isinstance(with_, int)
    return with_


LOST = [TimeoutError(), NetworkError("reset"), 500, 502, 503, 504]


@pytest.mark.parametrize("lost", LOST, ids=label)
@pytest.mark.parametrize("runner", [str(uuid.UUID(int=1)), ""], ids=["runner", "nameless"])
def test_an_attempt_under_which_was_asked_was_delivered(
    twice: Kernel, clock: ManualClock, lost: object, runner: str
) -> None:
    """However the answer to its webhook was lost: it is acknowledged, it keeps its lease, and the
    next one comes when that has run out."""
    inbox, wire = Inbox(twice), Wire(twice, clock)

    def answer(sent: Sent) -> int:
        lease = sent.lease._replace(runner=runner)
        assert wire.act("POST", path_of(lease, "/heartbeat"), None, lease).status == 204
        return _fails(lost)

    inbox.answer = answer
    lease = start(twice, inbox)
    assert _events(twice, lease.execution_id, "dispatch.acked") == [1]
    assert _events(twice, lease.execution_id, "dispatch.failed") == []
    clock.advance(119)
    assert inbox.round() == []
    live = lease._replace(runner=runner)
    assert submit(wire, live).json["decision"] == "proceed"
    clock.advance(121)
    assert inbox.lease(lease.execution_id).attempt == 2


def test_an_attempt_under_which_was_asked_costs_no_more_than_any_other(
    twice: Kernel, clock: ManualClock
) -> None:
    """A handler that gets on may lose the answers to its webhooks for ever."""
    inbox, wire = Inbox(twice), Wire(twice, clock)

    def answer(sent: Sent) -> int:
        step = submit(wire, sent.lease, sent.lease.attempt).json["step_id"]
        target = path_of(sent.lease, f"/steps/{step}/complete")
        assert wire.act("POST", target, {"result": 1}, sent.lease).status == 200
        raise TimeoutError

    inbox.answer = answer
    execution = twice.create(AGENT)
    for number in range(1, 6):
        assert [sent.lease.attempt for sent in inbox.round()] == [number]
        clock.advance(121)
    assert twice.get(execution.id).status == "running"


def test_who_asks_after_the_failure_was_recorded_is_too_late(
    kernel: Kernel, inbox: Inbox, clock: ManualClock
) -> None:
    """Then the next attempt is on its way."""
    inbox.answer = lambda _: _fails(TimeoutError())
    lease = start(kernel, inbox)
    wire = Wire(kernel, clock)
    assert wire.act("POST", path_of(lease, "/heartbeat"), None, lease).code == "lease_superseded"
    clock.advance(10)
    assert inbox.lease(lease.execution_id).attempt == 2


def test_an_address_that_nothing_can_be_sent_to(twice: Kernel, clock: ManualClock) -> None:
    """Its deliveries fail like others; those of other agents go on."""
    receiver_url = "http://agent/webhook"
    twice.register_agent("odd", webhook_url="http://agent/no where", secret=SECRET)
    odd, fine = twice.create("odd"), twice.create(AGENT)
    deliver = HttpDeliver()

    class Half(Inbox):
        def __call__(self, url: str, headers: Any, body: bytes, timeout: float) -> int:
            if url == receiver_url:
                return super().__call__(url, headers, body, timeout)
            return deliver(url, headers, body, timeout)

    inbox = Half(twice)
    for _ in range(4):
        inbox.round()
        clock.advance(40)
    assert twice.get(odd.id).failure_reason == "dispatch_exhausted"
    assert inbox.sent[0].lease.execution_id == fine.id


# -- when


def test_what_is_secret_in_an_address_is_told_nobody(
    kernel: Kernel, inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    """The event and the log of a failure have the address without its password and its query."""
    address = "http://us:pass@agent:8000/hook?key=word"
    kernel.register_agent(AGENT, webhook_url=address, secret=SECRET)
    inbox.answer = lambda _: 500
    execution = kernel.create(AGENT)
    (sent,) = inbox.round()
    assert sent.url == address
    (failed,) = (it for it in kernel.events(execution.id) if it.type == "dispatch.failed")
    assert "'http://agent:8000/hook' answered 500" in failed.payload["reason"]
    for told in (str(failed), caplog.text):
        assert "pass" not in told
        assert "word" not in told


def test_what_is_due_next(tmp_path: Path, clock: ManualClock) -> None:
    """A round says when the next has something to do: a back-off, a lease, a deadline; never more
    than the quarter of a second after which work of other processes is looked for."""
    with Kernel(tmp_path / "timed.db", clock=clock, deadline=500.0) as kernel:
        kernel.register_agent(AGENT, webhook_url="http://x", secret=SECRET)
        inbox = Inbox(kernel)
        assert inbox.seconds_to_next() == 0.25
        execution = kernel.create(AGENT)
        inbox.round()
        assert inbox.seconds_to_next() == pytest.approx(120)
        clock.advance(119.9)
        assert inbox.seconds_to_next() == pytest.approx(0.1)
        clock.advance(380)
        assert inbox.seconds_to_next() == pytest.approx(0.1)
        assert kernel.get(execution.id).status == "running"
        clock.advance(0.1)
        inbox.seconds_to_next()
        assert kernel.get(execution.id).failure_reason == "deadline_exceeded"


def test_work_of_this_process_is_due_at_once(tmp_path: Path) -> None:
    """With the thread running, a webhook is there long before the next look at the file."""
    with Kernel(tmp_path / "kernel.db") as kernel, Receiver() as receiver:
        kernel.register_agent(AGENT, webhook_url=receiver.url, secret=SECRET)
        kernel.deliver_webhooks(HttpDeliver())
        for number in range(1, 11):
            kernel.create(AGENT)
            receiver.wait_for(number, 5.0)


def test_a_deadline_is_kept_by_the_thread(tmp_path: Path) -> None:
    """Nobody has to look for the execution to be cancelled."""
    with Kernel(tmp_path / "kernel.db", deadline=0.3) as kernel, Receiver() as receiver:
        kernel.register_agent(AGENT, webhook_url=receiver.url, secret=SECRET)
        kernel.deliver_webhooks(HttpDeliver())
        kernel.create(AGENT)
        mark = kernel.change_mark()

        def cancelled() -> bool:
            read = kernel._store().read
            (status,) = read(lambda db: db.execute("SELECT status FROM executions").fetchone())
            return bool(status == "cancelled")

        wait_until(cancelled, "the deadline", 10)
        assert kernel.change_mark() > mark


# -- receivers that hang


def test_a_receiver_that_hangs_holds_up_nobody_else(tmp_path: Path) -> None:
    """Four of its deliveries are under way and no more; those of another agent arrive."""
    with Receiver() as hanging, Receiver() as fine:
        hanging.answer = hanging.hang
        with Kernel(tmp_path / "kernel.db") as kernel:
            kernel.register_agent(AGENT, webhook_url=hanging.url, secret=SECRET)
            kernel.register_agent(OTHER, webhook_url=fine.url, secret=SECRET)
            kernel.deliver_webhooks(HttpDeliver())
            for _ in range(8):
                kernel.create(AGENT)
            hanging.wait_for(4)
            for number in range(1, 9):
                kernel.create(OTHER)
                fine.wait_for(number)
            assert len(hanging.received) == 4
            hanging.close()


def test_after_a_time_out_one_at_a_time(kernel: Kernel, inbox: Inbox, clock: ManualClock) -> None:
    """A receiver that has not answered in time gets one delivery at once until it answers."""
    under_way: list[int] = []
    guard = threading.Lock()

    def hang(sent: Sent) -> int:
        with guard:
            under_way.append(len(under_way) + 1)
        raise TimeoutError

    inbox.answer = hang
    for _ in range(6):
        kernel.create(AGENT)
    assert len(inbox.round()) == 4
    clock.advance(10)
    assert len(inbox.round()) == 1
    assert len(inbox.round()) == 1
    inbox.answer = lambda _: 200
    inbox.round()
    assert len(inbox.round()) > 1


# -- several processes, and restarts


def test_kernels_that_share_a_file_deliver_each_attempt_once(tmp_path: Path) -> None:
    """Two dispatchers on one file, forty executions: forty webhooks, all different."""
    path = tmp_path / "kernel.db"
    with Receiver() as receiver, Kernel(path) as first, Kernel(path) as second:
        first.register_agent(AGENT, webhook_url=receiver.url, secret=SECRET)
        for kernel in (first, second):
            kernel.deliver_webhooks(HttpDeliver())
        ids = {kernel.create(AGENT).id for _ in range(20) for kernel in (first, second)}
        received = receiver.wait_for(40)
        assert {webhook.lease.execution_id for webhook in received} == ids
        for execution_id in ids:
            wait_until(lambda e=execution_id: _events(first, e, "dispatch.acked"), "the ack")
        assert len(receiver.received) == 40


def test_a_delivery_survives_its_kernel(
    kernel: Kernel, inbox: Inbox, path: Path, clock: ManualClock
) -> None:
    """A kernel that is started again on the file leaves an attempt alone until its lease has run
    out, and then delivers the next."""
    lease = start(kernel, inbox)
    submit(Wire(kernel, clock), lease)
    kernel.close()
    with Kernel(path, clock=clock) as restarted:
        inbox = Inbox(restarted)
        clock.advance(119)
        assert inbox.round() == []
        clock.advance(2)
        assert inbox.lease(lease.execution_id) == lease._replace(attempt=2)


def test_after_a_reboot_every_attempt_is_delivered_again(
    kernel: Kernel, inbox: Inbox, path: Path, clock: ManualClock
) -> None:
    """No lease survives the machine's clock."""
    lease = start(kernel, inbox)
    kernel.close()
    clock.reboot("boot-2")
    with Kernel(path, clock=clock) as restarted:
        assert Inbox(restarted).lease(lease.execution_id) == lease._replace(attempt=2)


# -- agents of this process


class Hosted:
    """Takes attempts as an agent of the process does."""

    def __init__(self, kernel: Kernel, takes: bool = True) -> None:
        self.takes = takes
        self.given: list[tuple[LeaseKey, float]] = []
        self._dispatcher = kernel.dispatcher()
        self._dispatcher.host(AGENT, self.receive)

    def receive(self, lease: LeaseKey, seconds: float) -> bool:
        self.given.append((lease, seconds))
        return self.takes

    def round(self) -> list[LeaseKey]:
        before = len(self.given)
        self._dispatcher.dispatch_once()
        assert self._dispatcher.join(20.0)
        return [lease for lease, _ in self.given[before:]]


def test_a_hosted_agent_is_handed_its_attempts(kernel: Kernel, inbox: Inbox) -> None:
    """Straight, though it has a webhook; the lease is served in process."""
    hosted = Hosted(kernel)
    execution = kernel.create(AGENT)
    (lease,) = hosted.round()
    assert hosted.given == [(lease, 120.0)]
    assert inbox.sent == []
    assert _events(kernel, execution.id, "dispatch.acked") == [1]
    step_id = kernel.agent.submit(lease, Proposal("tool_call", "t", "1")).step_id
    kernel.agent.complete_step(lease, step_id, "2")
    kernel.agent.complete(lease, "3")
    assert kernel.get(execution.id).output == 3
    assert hosted.round() == []


def test_a_hosted_agent_that_is_full_gets_it_later(kernel: Kernel, clock: ManualClock) -> None:
    """No strike counts, and the lease is free."""
    hosted = Hosted(kernel, takes=False)
    execution = kernel.create(AGENT)
    (lease,) = hosted.round()
    assert _events(kernel, execution.id, "dispatch.failed") == [1]
    hosted.takes = True
    clock.advance(2)
    assert hosted.round() == [lease._replace(attempt=2)]


def test_an_agent_that_is_closed_gets_nothing_more(kernel: Kernel, inbox: Inbox) -> None:
    """What it is offered at this moment goes back, due at once for another process."""
    hosted = Hosted(kernel, takes=False)
    execution = kernel.create(AGENT)

    def closing(lease: LeaseKey, seconds: float) -> bool:
        kernel.unhost(AGENT)
        return False

    kernel.unhost(AGENT)
    kernel.dispatcher().host(AGENT, closing)
    kernel.dispatcher().dispatch_once()
    assert kernel.dispatcher().join(20.0)
    assert hosted.given == []
    assert inbox.lease(execution.id).attempt == 2


def test_a_hosted_agent_that_fails_to_take_is_like_one_that_is_full(kernel: Kernel) -> None:
    def broken(lease: LeaseKey, seconds: float) -> bool:
        raise RuntimeError("broken")

    kernel.dispatcher().host(AGENT, broken)
    execution = kernel.create(AGENT)
    kernel.dispatcher().dispatch_once()
    assert kernel.dispatcher().join(20.0)
    assert _events(kernel, execution.id, "dispatch.failed") == [1]


def test_hosting_starts_by_itself(tmp_path: Path) -> None:
    """`Kernel.host` needs nothing else; closing the kernel ends it."""
    taken: list[LeaseKey] = []
    with Kernel(tmp_path / "kernel.db") as kernel:
        kernel.register_agent(AGENT)
        kernel.host(AGENT, lambda lease, _: bool(taken.append(lease)) or True)
        execution = kernel.create(AGENT)
        wait_until(lambda: taken, "the attempt")
        assert taken[0].execution_id == execution.id
        kernel.unhost(AGENT)
        other = kernel.create(AGENT)
        assert kernel.claim(other.id) is not None
    names = [thread.name for thread in threading.enumerate()]
    assert "rebuno-dispatcher" not in names


def test_a_late_answer_finds_the_kernel_closed(tmp_path: Path) -> None:
    """A receiver that answers when the kernel has been closed is heard by nobody, and its attempt
    has its lease."""
    path = tmp_path / "kernel.db"
    late = threading.Event()

    def answer(_: Received) -> int:
        late.wait(20)
        return 500

    with Receiver(answer) as receiver:
        with Kernel(path) as kernel:
            kernel.register_agent(AGENT, webhook_url=receiver.url, secret=SECRET)
            kernel.deliver_webhooks(HttpDeliver())
            execution = kernel.create(AGENT)
            receiver.wait_for(1)
        late.set()
        wait_until(
            lambda: not any(t.name == "rebuno-delivery" for t in threading.enumerate()), "its end"
        )
    with Kernel(path) as kernel:
        assert _events(kernel, execution.id, "dispatch.failed") == []
        assert kernel.claim(execution.id) is None


PROGRAMS = Path(__file__).parent / "programs"


def test_c37_the_attempt_of_a_host_that_was_killed_is_delivered(tmp_path: Path) -> None:
    """Another process that serves the agent takes over within seconds, though the lease is long."""
    path = tmp_path / "kernel.db"
    with Receiver() as receiver, Kernel(path) as kernel:
        kernel.register_agent(AGENT, webhook_url=receiver.url, secret=SECRET)
        execution = kernel.create(AGENT)
        script = ChildScript(PROGRAMS / "holder.py", tmp_path)
        with script.start(db=path, execution=execution.id) as child:
            child.hears("held")
            kernel.deliver_webhooks(HttpDeliver())
            kernel.create(AGENT)
            receiver.wait_for(1)
            assert receiver.received[0].lease.execution_id != execution.id
        receiver.wait_for(2, 10.0)
        assert receiver.received[1].lease.execution_id == execution.id
        assert receiver.received[1].lease.attempt == 2


def test_a_probe_that_takes_its_time_is_waited_for(
    kernel: Kernel, inbox: Inbox, clock: ManualClock
) -> None:
    """While the one delivery to an agent that is away hangs, nothing else is tried, nor looked for
    in a hurry."""
    inbox.answer = lambda _: 503
    for _ in range(2):
        kernel.create(AGENT)
    inbox.round()
    begun, over = threading.Event(), threading.Event()

    def hang(_: Sent) -> int:
        begun.set()
        over.wait(20)
        return 503

    inbox.answer = hang
    clock.advance(10)
    inbox.seconds_to_next()
    assert begun.wait(20)
    clock.advance(10)
    assert inbox.seconds_to_next() >= 0.25
    over.set()
