"""What this kernel offers beyond the protocol (protocol.md 17)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import LARGEST_BATCH, LeaseKey

from .moves import Inbox, path_of, start, submit
from .wire import AGENT, OTHER, Answer, Wire


@pytest.fixture
def lease(kernel: Kernel, inbox: Inbox) -> LeaseKey:
    return start(kernel, inbox)


def _id() -> dict[str, str]:
    return {"Rebuno-Request-Id": str(uuid.uuid4())}


def _batch(wire: Wire, lease: LeaseKey, *operations: dict[str, Any], **more: Any) -> Answer:
    body = {"operations": list(operations)}
    return wire.act("POST", path_of(lease, "/batch"), body, lease, **more)


def _submit(args: object = None) -> dict[str, Any]:
    return {"op": "submit", "kind": "tool_call", "target": "t", "args": args}


def _done(step_id: str, result: object) -> dict[str, Any]:
    return {"op": "complete_step", "step_id": step_id, "result": result}


# -- request-id


def test_a_submit_is_repeated_under_its_id(wire: Wire, kernel: Kernel, lease: LeaseKey) -> None:
    """The same answer, and nothing happens; without the id, or with another, it is the next
    occurrence."""
    more = _id()
    first = submit(wire, lease, more=more)
    log = kernel.events(lease.execution_id)
    assert submit(wire, lease, more=more) == first
    assert kernel.events(lease.execution_id) == log
    others = {submit(wire, lease, more=_id()).json["step_id"], submit(wire, lease).json["step_id"]}
    assert len(others | {first.json["step_id"]}) == 3


def test_an_id_survives_the_kernel(
    wire: Wire, kernel: Kernel, lease: LeaseKey, path: Path, clock: ManualClock
) -> None:
    """A kernel that is started again on the file knows it."""
    more = _id()
    first = submit(wire, lease, more=more)
    kernel.close()
    with Kernel(path, clock=clock) as restarted:
        assert submit(Wire(restarted, clock), lease, more=more) == first
        assert len(restarted.list_steps(lease.execution_id)) == 1


def test_another_body_under_a_used_id_is_refused(wire: Wire, lease: LeaseKey) -> None:
    """400, whether the body, or only what it is for, differs."""
    more = _id()
    first = submit(wire, lease, 1, more=more)
    assert submit(wire, lease, 2, more=more).code == "validation_error"
    fail = path_of(lease, f"/steps/{first.json['step_id']}/fail")
    assert wire.act("POST", fail, {"error": 1}, lease, more=more).status == 400
    assert submit(wire, lease, 1, more=more) == first


@pytest.mark.parametrize("text", ["x", "0" * 31])
def test_an_id_is_a_uuid(wire: Wire, lease: LeaseKey, text: str) -> None:
    assert submit(wire, lease, more={"Rebuno-Request-Id": text}).code == "validation_error"


def test_an_id_belongs_to_one_attempt(
    wire: Wire, kernel: Kernel, inbox: Inbox, lease: LeaseKey, clock: ManualClock
) -> None:
    """The next attempt may use it again; the old one is told that it is superseded."""
    more = _id()
    first = submit(wire, lease, more=more)
    clock.advance(121)
    later = inbox.lease(lease.execution_id)
    assert submit(wire, lease, more=more).code == "lease_superseded"
    assert submit(wire, later, more=more).json == first.json
    assert submit(wire, later, "else", more=more).code == "validation_error"


def test_an_error_is_not_kept(wire: Wire, lease: LeaseKey) -> None:
    """What was refused may be sent again, mended, under the same id."""
    more = _id()
    assert submit(wire, lease, fields={"resources": ["x"]}, more=more).status == 400
    assert submit(wire, lease, more=more).json["decision"] == "proceed"


def test_a_replay_is_repeated_with_its_result(
    wire: Wire, kernel: Kernel, inbox: Inbox, lease: LeaseKey, clock: ManualClock
) -> None:
    """What is kept is the decision; the result is read again."""
    won, lost = (submit(wire, lease, n).json["step_id"] for n in (1, 2))
    wire.act("POST", path_of(lease, f"/steps/{won}/complete"), {"result": "x" * 5000}, lease)
    wire.act("POST", path_of(lease, f"/steps/{lost}/fail"), {"error": [1]}, lease)
    clock.advance(121)
    lease = inbox.lease(lease.execution_id)
    for args, expected in ((1, {"result": "x" * 5000}), (2, {"error": [1]})):
        more = _id()
        first = submit(wire, lease, args, more=more)
        assert first.json.items() >= expected.items()
        assert submit(wire, lease, args, more=more) == first


def test_a_denial_is_repeated(
    wire: Wire, inbox: Inbox, lease: LeaseKey, clock: ManualClock
) -> None:
    """With its reason and its rule."""
    once = {"idempotency": "at_most_once"}
    submit(wire, lease, fields=once)
    clock.advance(121)
    lease = inbox.lease(lease.execution_id)
    submit(wire, lease, fields=once)
    more = _id()
    denied = submit(wire, lease, fields=once, more=more)
    assert denied.json["decision"] == "denied"
    assert submit(wire, lease, fields=once, more=more) == denied


Mutation = Callable[[Wire, LeaseKey, str, dict[str, str]], Answer]

ENDS: dict[str, Mutation] = {
    "complete": lambda wire, lease, _, more: wire.act(
        "POST", path_of(lease, "/complete"), {"output": 1}, lease, more=more
    ),
    "fail": lambda wire, lease, _, more: wire.act(
        "POST", path_of(lease, "/fail"), {"error": "x"}, lease, more=more
    ),
    "release": lambda wire, lease, _, more: wire.act(
        "POST", path_of(lease, "/release"), None, lease, more=more
    ),
    "complete_step": lambda wire, lease, step, more: wire.act(
        "POST", path_of(lease, f"/steps/{step}/complete"), {"result": 1}, lease, more=more
    ),
    "fail_step": lambda wire, lease, step, more: wire.act(
        "POST", path_of(lease, f"/steps/{step}/fail"), {"error": 1}, lease, more=more
    ),
}


@pytest.mark.parametrize("mutation", ENDS)
def test_any_mutation_is_repeated_under_its_id(
    wire: Wire, kernel: Kernel, lease: LeaseKey, mutation: str
) -> None:
    """Also when it has ended the execution, or given the lease back: the attempt still matches."""
    step_id = submit(wire, lease).json["step_id"]
    more = _id()
    first = ENDS[mutation](wire, lease, step_id, more)
    log = kernel.events(lease.execution_id)
    assert ENDS[mutation](wire, lease, step_id, more) == first
    assert kernel.events(lease.execution_id) == log


def test_a_submit_of_an_ended_execution_is_told_so(
    wire: Wire, kernel: Kernel, lease: LeaseKey
) -> None:
    """Whatever its first answer was: no body may begin any more."""
    more = _id()
    submit(wire, lease, more=more)
    kernel.cancel(lease.execution_id)
    assert submit(wire, lease, more=more).json == {"decision": "execution_terminal"}


# -- batch


def test_a_batch_is_done_in_order(wire: Wire, kernel: Kernel, lease: LeaseKey) -> None:
    """An outcome, the next submit, the completion: each with the answer of its route."""
    step_id = submit(wire, lease, 1).json["step_id"]
    answer = _batch(wire, lease, _done(step_id, "one"), _submit(2))
    assert answer.status == 200
    recorded, proceed = answer.json["results"]
    assert recorded == {"status": 200, "body": {"decision": "recorded"}}
    assert proceed["status"] == 200
    assert proceed["body"]["decision"] == "proceed"
    last = _done(proceed["body"]["step_id"], 2)
    answer = _batch(wire, lease, last, {"op": "complete", "output": {"n": 3}})
    assert answer.json["results"] == [
        {"status": 200, "body": {"decision": "recorded"}},
        {"status": 204, "body": None},
    ]
    execution = kernel.get(lease.execution_id)
    assert (execution.status, execution.output) == ("completed", {"n": 3})


def test_a_batch_may_fail(wire: Wire, kernel: Kernel, lease: LeaseKey) -> None:
    """Steps and the execution."""
    step_id = submit(wire, lease).json["step_id"]
    failed = {"op": "fail_step", "step_id": step_id, "error": {"message": "no"}}
    assert _batch(wire, lease, failed, {"op": "fail", "error": "x"}).status == 200
    assert kernel.get_step(lease.execution_id, step_id).error == {"message": "no"}
    assert kernel.get(lease.execution_id).failure_reason == "x"


def test_a_batch_stops_at_a_refusal(wire: Wire, kernel: Kernel, lease: LeaseKey) -> None:
    """What came before it stands, what comes after is not tried."""
    step_id = submit(wire, lease).json["step_id"]
    answer = _batch(wire, lease, _done(step_id, 1), _done("f" * 64, 2), _submit("never"))
    assert [result["status"] for result in answer.json["results"]] == [200, 404]
    assert answer.json["results"][1]["body"]["code"] == "not_found"
    (step,) = kernel.list_steps(lease.execution_id)
    assert (step.status, step.result) == ("succeeded", 1)


@pytest.mark.parametrize(
    ("again", "goes_on"),
    [
        ({"op": "complete_step", "result": {"a": 1, "b": 2}}, True),
        ({"op": "complete_step", "result": {"b": 2, "a": 1}}, True),
        ({"op": "complete_step", "result": {"a": 1, "b": 3}}, False),
        ({"op": "complete_step"}, False),
        ({"op": "fail_step", "error": 1}, False),
    ],
)
def test_a_batch_stops_at_an_outcome_that_was_recorded_otherwise(
    wire: Wire, kernel: Kernel, lease: LeaseKey, again: dict[str, Any], goes_on: bool
) -> None:
    """A replay of the same outcome is as good as recorded; another one means that the agent does
    not know what is recorded, so nothing follows."""
    step_id = submit(wire, lease).json["step_id"]
    _batch(wire, lease, _done(step_id, {"a": 1, "b": 2}))
    answer = _batch(wire, lease, {**again, "step_id": step_id}, _submit("next"))
    assert len(answer.json["results"]) == 1 + goes_on
    assert answer.json["results"][0]["body"]["decision"] == "replay"
    assert len(kernel.list_steps(lease.execution_id)) == 1 + goes_on


def test_a_batch_is_one_transaction(
    wire: Wire, kernel: Kernel, lease: LeaseKey, clock: ManualClock
) -> None:
    """All of its events have one moment, and another process sees all or nothing of it."""
    step_id = submit(wire, lease).json["step_id"]
    mark = kernel.change_mark()
    _batch(wire, lease, _done(step_id, 1), _submit(2), _submit(3))
    assert kernel.change_mark() == mark + 1


def test_a_batch_is_repeated_under_its_id(wire: Wire, kernel: Kernel, lease: LeaseKey) -> None:
    """With all of its answers, refusals included."""
    step_id = submit(wire, lease).json["step_id"]
    more = _id()
    operations = (_done(step_id, 1), _submit(2), _done("f" * 64, 1))
    first = _batch(wire, lease, *operations, more=more)
    assert [result["status"] for result in first.json["results"]] == [200, 200, 404]
    log = kernel.events(lease.execution_id)
    assert _batch(wire, lease, *operations, more=more) == first
    assert kernel.events(lease.execution_id) == log


def test_the_last_batch_is_repeated_under_its_id(
    wire: Wire, kernel: Kernel, lease: LeaseKey
) -> None:
    """Though its execution has ended."""
    step_id = submit(wire, lease).json["step_id"]
    more = _id()
    operations = (_done(step_id, 1), {"op": "complete", "output": None})
    first = _batch(wire, lease, *operations, more=more)
    assert _batch(wire, lease, *operations, more=more) == first


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"operations": []},
        {"operations": None},
        {"operations": 5},
        {"operations": [5]},
        {"operations": [{}]},
        {"operations": [{"op": "cancel"}]},
        {"operations": [{"op": "submit", "color": 1}]},
        {"operations": [{"op": "submit", "resources": [5]}]},
        {"operations": [{"op": "submit", "kind": "local", "target": "x"}] * (LARGEST_BATCH + 1)},
    ],
)
def test_a_batch_that_cannot_be_read_does_nothing(
    wire: Wire, kernel: Kernel, lease: LeaseKey, body: object
) -> None:
    """One of too many operations neither: a batch holds the file while it is done."""
    before = kernel.events(lease.execution_id)
    answer = wire.act("POST", path_of(lease, "/batch"), body, lease)
    assert (answer.status, answer.code) == (400, "validation_error")
    assert kernel.events(lease.execution_id) == before


# -- leases, release


def _listed(lease: LeaseKey) -> dict[str, Any]:
    names = ("execution_id", "dispatch_id", "dispatch_attempt")
    return dict(zip(names, lease[:3], strict=True))


def test_many_leases_are_renewed_at_once(
    wire: Wire, kernel: Kernel, inbox: Inbox, clock: ManualClock
) -> None:
    """The answer names those that are gone by their places: also those of another agent."""
    mine, done = start(kernel, inbox), start(kernel, inbox)
    theirs = start(kernel, inbox, OTHER)
    kernel.cancel(done.execution_id)
    unknown = mine._replace(execution_id=str(uuid.UUID(int=1)))
    clock.advance(100)
    listed = [_listed(lease) for lease in (done, mine, theirs, unknown)]
    answer = wire.act("POST", "/v0/leases", {"leases": listed})
    assert (answer.status, answer.json) == (200, {"superseded": [0, 2, 3]})
    clock.advance(100)
    renewed = [sent.lease for sent in inbox.round()]
    assert renewed == [theirs._replace(attempt=2)]
    assert wire.act("POST", "/v0/leases", {"leases": []}).json == {"superseded": []}


@pytest.mark.parametrize("item", [5, {}, {"execution_id": "x"}, None, "x"])
def test_leases_that_are_none_are_refused(wire: Wire, item: object) -> None:
    assert wire.act("POST", "/v0/leases", {"leases": [item]}).code == "validation_error"


def test_a_released_lease_is_delivered_again_at_once(
    wire: Wire, kernel: Kernel, inbox: Inbox, lease: LeaseKey
) -> None:
    """To the next attempt; an interrupted one after its back-off."""
    assert wire.act("POST", path_of(lease, "/release"), None, lease).status == 204
    lease = inbox.lease(lease.execution_id)
    assert lease.attempt == 2
    target = path_of(lease, "/release?interrupted=1")
    assert wire.act("POST", target, None, lease).status == 204
    assert inbox.round() == []
    gone = wire.act("POST", target, None, lease)
    assert (gone.status, gone.code) == (409, "lease_superseded")


# -- attempts


def _failed(wire: Wire, lease: LeaseKey, step_id: str, **fields: object) -> Answer:
    body = {"attempt": 1, "error": {"message": "busy"}, "retry_in": 60, **fields}
    return wire.act("POST", path_of(lease, f"/steps/{step_id}/attempt"), body, lease)


KNOWS = {"Rebuno-Extensions": "request-id, attempts"}


def test_only_an_agent_that_knows_tries_is_told_of_them(
    wire: Wire, kernel: Kernel, inbox: Inbox, lease: LeaseKey, clock: ManualClock
) -> None:
    """To another one the step proceeds as any: it is executing, and takes an outcome."""
    step_id = submit(wire, lease).json["step_id"]
    assert _failed(wire, lease, step_id).json == {"decision": "recorded"}
    told = submit(wire, _next(inbox, lease, clock), more=KNOWS)
    assert told.json == {
        "decision": "proceed",
        "step_id": step_id,
        "attempt": 1,
        "retry_in": 0,
    }
    last = _next(inbox, lease, clock)
    assert submit(wire, last).json == {"decision": "proceed", "step_id": step_id}
    assert kernel.get_step(lease.execution_id, step_id).status == "executing"


def test_a_repeated_submit_is_told_the_same_of_tries(
    wire: Wire, inbox: Inbox, lease: LeaseKey, clock: ManualClock
) -> None:
    """Under its request id the answer is the first one."""
    step_id = submit(wire, lease).json["step_id"]
    _failed(wire, lease, step_id, retry_in=200.5)
    later, more = _next(inbox, lease, clock), _id() | KNOWS
    first = submit(wire, later, more=more)
    assert first.json["retry_in"] > 0
    assert submit(wire, later, more=more) == first


@pytest.mark.parametrize(
    "fields",
    [
        *({"attempt": bad} for bad in (0, -1, 1.5, "1", 2**40)),
        *({"retry_in": bad} for bad in (-1, 1e300, "soon")),
        {"more": 1},
    ],
)
def test_a_try_that_says_nonsense_is_refused(
    wire: Wire, kernel: Kernel, lease: LeaseKey, fields: dict[str, object]
) -> None:
    """400, and the step is as it was."""
    step_id = submit(wire, lease).json["step_id"]
    assert _failed(wire, lease, step_id, **fields).code == "validation_error"
    assert kernel.get_step(lease.execution_id, step_id).status == "executing"


def _next(inbox: Inbox, lease: LeaseKey, clock: ManualClock) -> LeaseKey:
    """The attempt that follows when the lease has run out."""
    clock.advance(121)
    [webhook] = [it for it in inbox.round() if "event" not in it.fields]
    assert webhook.lease.execution_id == lease.execution_id
    return webhook.lease


# -- cancel-notice

NAMED = {"Rebuno-Extensions": "request-id, cancel-notice"}


@pytest.mark.parametrize("named", [True, False])
def test_a_cancelled_agent_is_told(
    wire: Wire, kernel: Kernel, inbox: Inbox, lease: LeaseKey, named: bool
) -> None:
    """By a webhook for the very lease that named the extension, and only for one that did."""
    wire.act("POST", path_of(lease, "/heartbeat"), None, lease, more=NAMED if named else {})
    kernel.cancel(lease.execution_id)
    notices = inbox.round()
    assert [notice.fields for notice in notices] == [
        {**_listed(lease), "lease_timeout_seconds": 120, "event": "cancelled"}
    ] * named
    assert inbox.round() == []


def test_a_superseded_agent_is_told(
    wire: Wire, kernel: Kernel, inbox: Inbox, lease: LeaseKey, clock: ManualClock
) -> None:
    """When another attempt takes the lease that ran out; the new one has not named it yet."""
    submit(wire, lease, more=NAMED)
    clock.advance(121)
    sent = inbox.round()
    assert {(it.lease.attempt, it.fields.get("event")) for it in sent} == {
        (1, "cancelled"),
        (2, None),
    }
    kernel.cancel(lease.execution_id)
    assert inbox.round() == []


def test_a_deadline_is_told(tmp_path: Path, clock: ManualClock) -> None:
    """An execution whose time is over is cancelled too."""
    with Kernel(tmp_path / "timed.db", clock=clock, deadline=10) as kernel:
        kernel.register_agent(AGENT, webhook_url="http://x", secret="shared")
        inbox, wire = Inbox(kernel), Wire(kernel, clock)
        lease = start(kernel, inbox)
        submit(wire, lease, more=NAMED)
        clock.advance(10)
        (notice,) = inbox.round()
        assert notice.fields["event"] == "cancelled"
        assert kernel.get(lease.execution_id).failure_reason == "deadline_exceeded"


def test_the_webhook_names_the_extensions(inbox: Inbox, lease: LeaseKey) -> None:
    named = dict(inbox.sent[0].headers)["Rebuno-Extensions"]
    assert named == (
        "request-id, batch, leases, release, wake, attempts, cancel-notice, runner, besides"
    )


# -- occurrences


@pytest.fixture
def two_kernels(kernel: Kernel, path: Path, clock: ManualClock) -> Iterator[tuple[Wire, Wire]]:
    """Two kernels that serve one file."""
    with Kernel(path, clock=clock) as second:
        yield Wire(kernel, clock), Wire(second, clock)


def test_occurrences_are_counted_over_kernels(
    two_kernels: tuple[Wire, Wire], kernel: Kernel, lease: LeaseKey
) -> None:
    """Identical calls of one attempt get their places whichever kernel they reach."""
    steps = [submit(two_kernels[n % 2], lease).json["step_id"] for n in range(4)]
    found = {s.step_id: s.occurrence for s in kernel.list_steps(lease.execution_id)}
    assert [found[step_id] for step_id in steps] == [0, 1, 2, 3]


def test_occurrences_are_counted_over_a_restart(
    wire: Wire, kernel: Kernel, lease: LeaseKey, path: Path, clock: ManualClock
) -> None:
    """A kernel that was away in the middle of an attempt goes on counting."""
    first = submit(wire, lease).json["step_id"]
    kernel.close()
    with Kernel(path, clock=clock) as restarted:
        wire = Wire(restarted, clock)
        second = submit(wire, lease).json["step_id"]
        found = {s.step_id: s.occurrence for s in restarted.list_steps(lease.execution_id)}
        assert found == {first: 0, second: 1}
        body = json.dumps({"output": None}).encode()
        assert wire.act("POST", path_of(lease, "/complete"), body, lease).status == 204
