"""An attempt is its first runner's (``runner`` in docs/explanation/service.md)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import LeaseKey

from .moves import Inbox, path_of, start, submit
from .wire import Answer, Wire

FIRST, SECOND = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))


@pytest.fixture
def lease(kernel: Kernel, inbox: Inbox) -> LeaseKey:
    """A new attempt, under which nobody has asked."""
    return start(kernel, inbox)


def of(lease: LeaseKey, runner: str) -> LeaseKey:
    return lease._replace(runner=runner)


def beat(wire: Wire, lease: LeaseKey, **more: Any) -> Answer:
    return wire.act("POST", path_of(lease, "/heartbeat"), None, lease, **more)


def together(wire: Wire, *leases: LeaseKey) -> Answer:
    """Renew them in one request."""
    listed = [
        {
            "execution_id": lease.execution_id,
            "dispatch_id": lease.dispatch_id,
            "dispatch_attempt": lease.attempt,
            **({"runner": lease.runner} if lease.runner else {}),
        }
        for lease in leases
    ]
    return wire.act("POST", "/v0/leases", {"leases": listed})


def refused(answer: Answer) -> bool:
    """As an attempt that is superseded."""
    return (answer.status, answer.code) == (409, "lease_superseded")


Ask = Callable[[Wire, LeaseKey, str], Answer]


def posting(rest: str, body: object = None) -> Ask:
    def ask(wire: Wire, lease: LeaseKey, step: str) -> Answer:
        return wire.act("POST", path_of(lease, rest.replace("STEP", step)), body, lease)

    return ask


REQUESTS: dict[str, Ask] = {
    "heartbeat": posting("/heartbeat"),
    "submit": posting("/steps", {"kind": "tool_call", "target": "t"}),
    "complete_step": posting("/steps/STEP/complete", {"result": 1}),
    "fail_step": posting("/steps/STEP/fail", {"error": 1}),
    "stream": posting("/steps/STEP/stream", {"seq": 1, "data": "x"}),
    "complete": posting("/complete", {"output": 1}),
    "fail": posting("/fail", {"error": "x"}),
    "release": posting("/release"),
}


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize(
    ("first", "other"),
    [(FIRST, SECOND), (FIRST, ""), ("", SECOND)],
    ids=["another", "a nameless one", "one beside a nameless one"],
)
def test_every_request_of_another_runner_is_refused(
    wire: Wire, kernel: Kernel, lease: LeaseKey, request_: str, first: str, other: str
) -> None:
    """Also of one that does not name itself, and where the first has not: nothing is recorded.
    What the first asks is done."""
    mine, theirs = of(lease, first), of(lease, other)
    step = submit(wire, mine, "begun").json["step_id"]
    log = kernel.events(lease.execution_id)
    assert refused(REQUESTS[request_](wire, theirs, step))
    assert kernel.events(lease.execution_id) == log
    assert REQUESTS[request_](wire, mine, step).status in (200, 204)


def test_a_batch_of_another_runner_is_refused(wire: Wire, kernel: Kernel, lease: LeaseKey) -> None:
    """Its first operation is, and no other follows."""
    beat(wire, of(lease, FIRST))
    log = kernel.events(lease.execution_id)
    body = {"operations": [{"op": "submit", "kind": "tool_call", "target": "t"}] * 2}
    target = path_of(lease, "/batch")
    (result,) = wire.act("POST", target, body, of(lease, SECOND)).json["results"]
    assert (result["status"], result["body"]["code"]) == (409, "lease_superseded")
    assert kernel.events(lease.execution_id) == log
    assert len(wire.act("POST", target, body, of(lease, FIRST)).json["results"]) == 2


def test_each_of_many_leases_has_its_runner(wire: Wire, kernel: Kernel, inbox: Inbox) -> None:
    """One request renews those of the runner that it names for each, and is the first request of
    those that nobody has asked for."""
    first, second, third = (start(kernel, inbox) for _ in range(3))
    beat(wire, of(first, FIRST))
    beat(wire, of(second, FIRST))
    listed = of(first, FIRST), of(second, SECOND), of(third, SECOND), second, of(second, FIRST)
    assert together(wire, *listed).json == {"superseded": [1, 3]}
    assert refused(beat(wire, of(third, FIRST)))
    assert beat(wire, of(third, SECOND)).status == 204


def test_an_attempt_is_bound_by_a_beat_that_is_too_young_to_be_written(
    wire: Wire, lease: LeaseKey, clock: ManualClock
) -> None:
    """The first one, in the moment of the claim."""
    assert beat(wire, of(lease, FIRST)).status == 204
    assert refused(beat(wire, of(lease, SECOND)))


def test_a_refused_beat_renews_nothing(
    wire: Wire, inbox: Inbox, lease: LeaseKey, clock: ManualClock
) -> None:
    """Whoever sends a captured webhook again cannot keep a dead process's lease alive."""
    beat(wire, of(lease, FIRST))
    clock.advance(100)
    beat(wire, of(lease, SECOND))
    together(wire, of(lease, SECOND), lease)
    clock.advance(21)
    assert inbox.lease(lease.execution_id).attempt == 2


def test_a_kernel_that_is_started_again_knows_the_runner(
    wire: Wire, kernel: Kernel, lease: LeaseKey, path: Path, clock: ManualClock
) -> None:
    """It is in the file."""
    beat(wire, of(lease, FIRST))
    kernel.close()
    with Kernel(path, clock=clock) as restarted:
        wire = Wire(restarted, clock)
        assert refused(beat(wire, of(lease, SECOND)))
        assert refused(beat(wire, lease))
        assert submit(wire, of(lease, FIRST)).json["decision"] == "proceed"


@pytest.mark.parametrize("runner", [SECOND, ""], ids=["named", "nameless"])
def test_the_next_attempt_is_whoever_asks_first(
    wire: Wire, inbox: Inbox, lease: LeaseKey, clock: ManualClock, runner: str
) -> None:
    """Each claim begins anew."""
    beat(wire, of(lease, FIRST))
    clock.advance(121)
    later = inbox.lease(lease.execution_id)
    assert beat(wire, of(later, runner)).status == 204
    assert refused(beat(wire, of(later, FIRST)))


def test_only_its_runner_gives_a_lease_back(
    wire: Wire, inbox: Inbox, lease: LeaseKey, clock: ManualClock
) -> None:
    """A second process that closes does not take it from the one that works."""
    beat(wire, of(lease, FIRST))
    assert refused(REQUESTS["release"](wire, of(lease, SECOND), ""))
    assert inbox.round() == []
    assert REQUESTS["release"](wire, of(lease, FIRST), "").status == 204
    assert inbox.lease(lease.execution_id).attempt == 2


def test_a_request_id_is_repeated_by_its_runner_alone(
    wire: Wire, kernel: Kernel, lease: LeaseKey
) -> None:
    """Another one that has seen the id does not get the answer either."""
    more = {"Rebuno-Request-Id": str(uuid.uuid4())}
    first = submit(wire, of(lease, FIRST), more=more)
    assert refused(submit(wire, of(lease, SECOND), more=more))
    assert submit(wire, of(lease, FIRST), more=more) == first
    assert len(kernel.list_steps(lease.execution_id)) == 1


def test_an_execution_that_has_ended_is_told_to_every_runner(
    wire: Wire, kernel: Kernel, lease: LeaseKey
) -> None:
    """What comes before the fence stays before it (protocol.md 5.4)."""
    beat(wire, of(lease, FIRST))
    kernel.cancel(lease.execution_id)
    answer = submit(wire, of(lease, SECOND))
    assert (answer.status, answer.json["decision"]) == (200, "execution_terminal")
    assert REQUESTS["complete"](wire, of(lease, SECOND), "").code == "execution_terminal"


def test_the_notice_is_for_the_runner_that_asked_for_it(
    wire: Wire, kernel: Kernel, inbox: Inbox, lease: LeaseKey
) -> None:
    """One that is refused cannot ask for notices."""
    beat(wire, of(lease, FIRST))
    beat(wire, of(lease, SECOND), more={"Rebuno-Extensions": "cancel-notice"})
    kernel.cancel(lease.execution_id)
    assert inbox.round() == []


@pytest.mark.parametrize("text", ["x", "0" * 31, "\xff"])
def test_a_runner_is_a_uuid(wire: Wire, lease: LeaseKey, text: str) -> None:
    """In the header and in a list of leases, where it is a text besides."""
    assert beat(wire, lease, more={"Rebuno-Runner": text}).code == "validation_error"
    assert together(wire, of(lease, text)).code == "validation_error"
    assert beat(wire, lease).status == 204


@pytest.mark.parametrize("value", [None, 5, "", []])
def test_a_listed_runner_is_a_text(wire: Wire, lease: LeaseKey, value: object) -> None:
    item = {
        "execution_id": lease.execution_id,
        "dispatch_id": lease.dispatch_id,
        "dispatch_attempt": lease.attempt,
        "runner": value,
    }
    assert wire.act("POST", "/v0/leases", {"leases": [item]}).code == "validation_error"
