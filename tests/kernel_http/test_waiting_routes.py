"""The routes of sessions, subagents, previous states and sleeps, as raw requests."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import LeaseKey

from .moves import Inbox, path_of, start, submit
from .wire import AGENT, OTHER, Wire

NOBODY = str(uuid.UUID(int=7))


@pytest.fixture
def lease(kernel: Kernel, inbox: Inbox) -> LeaseKey:
    return start(kernel, inbox)


def test_an_execution_tells_its_relations(wire: Wire, lease: LeaseKey) -> None:
    """Those that it has."""
    step_id = submit(wire, lease).json["step_id"]
    spawned_by = {"execution_id": lease.execution_id, "step_id": step_id}
    fields = {"agent_id": AGENT, "session": "s", "on_behalf_of": "ada", "spawned_by": spawned_by}
    created = wire.operate("POST", "/v0/executions", fields).json
    assert created["idempotency_key"] == step_id
    told = {name: created[name] for name in ("session", "on_behalf_of", "spawned_by")}
    assert told == {"session": "s", "on_behalf_of": "ada", "spawned_by": spawned_by}
    assert "parent_execution_id" not in created
    [first, *_] = wire.operate("GET", f"/v0/executions/{created['id']}/events").json
    assert first["payload"] == {
        "execution_id": created["id"],
        "status": "pending",
        "session": "s",
        "spawned_by": spawned_by,
    }
    plain = wire.operate("GET", path_of(lease)).json
    assert not plain.keys() & {"session", "spawned_by", "parent_execution_id", "on_behalf_of"}


def test_ids_of_relations_may_have_any_form_of_a_uuid(wire: Wire, lease: LeaseKey) -> None:
    """They are told in the one form (protocol.md 0.3, 1.1)."""
    step_id = submit(wire, lease).json["step_id"]
    spawned_by = {"execution_id": lease.execution_id.upper(), "step_id": step_id}
    child = wire.operate("POST", "/v0/executions", {"agent_id": AGENT, "spawned_by": spawned_by})
    assert child.json["spawned_by"]["execution_id"] == lease.execution_id
    assert wire.act("POST", path_of(lease, "/complete"), b"{}", lease).status == 204
    parent = f"{{{lease.execution_id}}}"
    heir = wire.operate(
        "POST", "/v0/executions", {"agent_id": AGENT, "parent_execution_id": parent}
    )
    assert heir.json["parent_execution_id"] == lease.execution_id


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"session": " "}, 400, "validation_error"),
        ({"session": 7}, 400, "validation_error"),
        ({"parent_execution_id": "x"}, 400, "validation_error"),
        ({"parent_execution_id": NOBODY}, 404, "not_found"),
        ({"spawned_by": "x"}, 400, "validation_error"),
        ({"spawned_by": {"execution_id": NOBODY}}, 400, "validation_error"),
        ({"spawned_by": {"execution_id": NOBODY, "step_id": 7}}, 400, "validation_error"),
        ({"spawned_by": {"execution_id": "x", "step_id": "0" * 64}}, 400, "validation_error"),
        ({"spawned_by": {"execution_id": NOBODY, "step_id": "0" * 64}}, 404, "not_found"),
        (
            {"spawned_by": {"execution_id": NOBODY, "step_id": "0" * 64, "color": "red"}},
            *(400, "validation_error"),
        ),
    ],
)
def test_relations_that_are_refused(
    wire: Wire, fields: dict[str, Any], status: int, code: str
) -> None:
    """Nothing is created."""
    answer = wire.operate("POST", "/v0/executions", {"agent_id": AGENT, **fields})
    assert (answer.status, answer.code) == (status, code)
    assert wire.operate("GET", "/v0/executions").json["executions"] == []


def test_a_list_of_one_session(wire: Wire) -> None:
    """By the query, spaces and all."""
    for session in ("a b", "c"):
        wire.operate("POST", "/v0/executions", {"agent_id": AGENT, "session": session})
    found = wire.operate("GET", "/v0/executions?session=a%20b").json["executions"]
    assert [it["session"] for it in found] == ["a b"]


# -- suspend


@pytest.mark.parametrize("body", [b"", b" ", {}, {"step_id": "", "seconds": 0}])
def test_a_suspend_says_whether_it_is(wire: Wire, lease: LeaseKey, body: Any) -> None:
    """200 in both cases, with or without an empty body."""
    answer = wire.act("POST", path_of(lease, "/suspend"), body, lease)
    assert (answer.status, answer.json) == (200, {"suspended": False})
    step_id = submit(wire, lease).json["step_id"]
    spawned_by = {"execution_id": lease.execution_id, "step_id": step_id}
    wire.operate("POST", "/v0/executions", {"agent_id": AGENT, "spawned_by": spawned_by})
    answer = wire.act("POST", path_of(lease, "/suspend"), body, lease)
    assert (answer.status, answer.json) == (200, {"suspended": True})
    assert wire.act("POST", path_of(lease, "/suspend"), body, lease).code == "lease_superseded"


def test_a_suspend_under_a_request_id_is_answered_again(wire: Wire, lease: LeaseKey) -> None:
    """The same, though the lease is gone."""
    step_id = submit(wire, lease).json["step_id"]
    body = {"step_id": step_id, "seconds": 60}
    named = {"Rebuno-Request-Id": str(uuid.uuid4())}
    for _ in range(2):
        answer = wire.act("POST", path_of(lease, "/suspend"), body, lease, more=named)
        assert (answer.status, answer.json) == (200, {"suspended": True})


@pytest.mark.parametrize(
    "body", [{"step_id": 7}, {"step_id": "x", "seconds": "y"}, {"color": "red"}, b"[", b"7"]
)
def test_a_suspend_that_makes_no_sense(wire: Wire, lease: LeaseKey, body: Any) -> None:
    """It is refused, and the lease stays."""
    answer = wire.act("POST", path_of(lease, "/suspend"), body, lease)
    assert (answer.status, answer.code) == (400, "validation_error")
    assert wire.act("POST", path_of(lease, "/heartbeat"), None, lease).status == 204


def test_only_its_agent_suspends_and_asks(wire: Wire, lease: LeaseKey) -> None:
    """Another one is forbidden; without a lease there is nothing to give up."""
    foreign = wire.act("POST", path_of(lease, "/suspend"), None, lease, agent=OTHER)
    assert (foreign.status, foreign.code) == (403, "forbidden")
    assert wire.act("GET", path_of(lease, "/previous"), agent=OTHER).code == "forbidden"
    assert wire.act("POST", path_of(lease, "/suspend")).code == "validation_error"
    assert wire.operate("POST", path_of(lease, "/suspend")).status == 401


def test_a_sleep_tells_when_it_ends(wire: Wire, lease: LeaseKey, clock: ManualClock) -> None:
    """In the event, as a time of the wall clock."""
    step_id = submit(wire, lease).json["step_id"]
    wire.act("POST", path_of(lease, "/suspend"), {"step_id": step_id, "seconds": 90}, lease)
    *_, blocked = wire.operate("GET", path_of(lease, "/events")).json
    assert blocked["payload"] == {
        "execution_id": lease.execution_id,
        "status": "blocked",
        "reason": "sleeping",
        "wake_at": "2026-01-01T12:01:30Z",
    }
    clock.advance(90)
    assert wire.operate("GET", path_of(lease)).json["status"] == "running"


def test_c36_an_open_sleep_is_no_older_when_the_clock_is_set(
    wire: Wire, lease: LeaseKey, clock: ManualClock
) -> None:
    """An attempt that resumes asks what is recorded without values, and counts from there."""
    submit(wire, lease, fields={"kind": "local", "target": "sleep"})
    submit(wire, lease)
    clock.advance(40)
    clock.step_wall(3600)
    listed = {it["target"]: it["started_at"] for it in recorded(wire, lease, "?values=none")}
    assert listed == {"sleep": "2026-01-01T13:00:00Z", "t": "2026-01-01T12:00:00Z"}
    assert {it["started_at"] for it in recorded(wire, lease)} == {"2026-01-01T12:00:00Z"}


def recorded(wire: Wire, lease: LeaseKey, query: str = "") -> list[dict[str, str]]:
    listed: list[dict[str, str]] = wire.act("GET", path_of(lease, f"/steps{query}")).json
    return listed


# -- previous


def test_a_state_comes_back_as_it_was_sent(wire: Wire, lease: LeaseKey) -> None:
    """To the letter, for the agent and for operators."""
    assert wire.act("GET", path_of(lease, "/previous")).json == {"state": None}
    body = b'{"output":1,"state":{"n": 1e2}}'
    assert wire.act("POST", path_of(lease, "/complete"), body, lease).status == 204
    fields = {"agent_id": AGENT, "parent_execution_id": lease.execution_id}
    child = wire.operate("POST", "/v0/executions", fields).json
    assert child["parent_execution_id"] == lease.execution_id
    path = f"/v0/executions/{child['id']}/previous"
    for answer in (wire.act("GET", path), wire.operate("GET", path)):
        assert answer.body == b'{"state":{"n": 1e2}}\n'
