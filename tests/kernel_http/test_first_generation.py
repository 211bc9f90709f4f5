"""Agents of the first generations: a lease is named in part, or not at all (protocol.md 2.2, 5.4).

They are those that sign their body alone; what signs in the newer form names its lease in full.
"""

from __future__ import annotations

from typing import Any

import pytest

from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import Delta, LeaseKey

from .moves import Inbox, path_of, start
from .wire import AGENT, OTHER, SECRET, Answer, Wire

CALL = {"kind": "tool_call", "target": "t"}
NOBODY = "00000000-0000-7000-8000-000000000007"


@pytest.fixture(autouse=True)
def _registered(kernel: Kernel) -> None:
    for agent_id in (AGENT, OTHER):
        kernel.register_agent(agent_id, webhook_url="http://x", secret=SECRET, signature="body")


@pytest.fixture
def lease(kernel: Kernel, inbox: Inbox, _registered: None) -> LeaseKey:
    return start(kernel, inbox)


def submit(wire: Wire, lease: LeaseKey, **fields: object) -> Answer:
    """As these agents do: the dispatch is named, the attempt is not."""
    more = {"Rebuno-Dispatch-Id": lease.dispatch_id}
    return wire.in_body_form("POST", path_of(lease, "/steps"), CALL | fields, more=more)


def tell(wire: Wire, lease: LeaseKey, rest: str, body: object = None) -> Answer:
    """Neither is named."""
    return wire.in_body_form("POST", path_of(lease, rest), body)


def settle(wire: Wire, lease: LeaseKey, step_id: str, result: object) -> Any:
    return tell(wire, lease, f"/steps/{step_id}/complete", {"result": result}).json


def test_an_execution_from_its_beginning_to_its_end(
    wire: Wire, kernel: Kernel, inbox: Inbox, clock: ManualClock, lease: LeaseKey
) -> None:
    """Calls that are alike are told apart, an outcome is recorded, a heartbeat keeps the lease;
    after a redelivery under the same dispatch what was recorded is replayed."""
    first, second = (submit(wire, lease).json for _ in range(2))
    assert [first["decision"], second["decision"]] == ["proceed", "proceed"]
    assert first["step_id"] != second["step_id"]
    assert settle(wire, lease, first["step_id"], 1) == {"decision": "recorded"}
    failed = tell(wire, lease, f"/steps/{second['step_id']}/fail", {"error": {"message": "x"}})
    assert failed.json == {"decision": "recorded"}
    clock.advance(100)
    assert tell(wire, lease, "/heartbeat").status == 204
    clock.advance(100)
    assert inbox.round() == []
    clock.advance(21)
    again = inbox.lease(lease.execution_id)
    assert (again.dispatch_id, again.attempt) == (lease.dispatch_id, 2)
    replayed = [submit(wire, again).json for _ in range(2)]
    assert [it["decision"] for it in replayed] == ["replay", "replay"]
    assert replayed[0]["result"] == 1
    assert tell(wire, lease, "/complete", {"output": "done"}).status == 204
    assert kernel.get(lease.execution_id).output == "done"
    assert submit(wire, again).json == {"decision": "execution_terminal"}
    assert tell(wire, lease, "/complete", {"output": 1}).code == "execution_terminal"


def test_a_delta_without_a_lease(wire: Wire, kernel: Kernel, lease: LeaseKey) -> None:
    """Is of a step that is executing, all the same."""
    step_id = submit(wire, lease).json["step_id"]
    listener = kernel.core.deltas.listen(lease.execution_id)
    delta, target = {"seq": 3, "data": "old"}, f"/steps/{step_id}/stream"
    assert tell(wire, lease, target, delta).status == 204
    assert listener.take() == [Delta(step_id, 3, "old")]
    assert tell(wire, lease, f"/steps/{'0' * 64}/stream", delta).status == 404
    settle(wire, lease, step_id, 1)
    assert tell(wire, lease, target, delta).code == "conflict"
    assert listener.take() == []


def test_a_sibling_of_a_step_that_waits_for_a_person(
    wire: Wire, kernel: Kernel, lease: LeaseKey
) -> None:
    """Its outcome is recorded when the execution is blocked; nothing new begins, and the execution
    does not end."""
    rule = "{id: ask, when: {target: ask}, then: {decision: require_approval}}"
    kernel.set_policy(AGENT, f"default_action: allow\nrules: [{rule}]")
    step_id = submit(wire, lease).json["step_id"]
    assert submit(wire, lease, target="ask").json["decision"] == "blocked"
    assert settle(wire, lease, step_id, 1) == {"decision": "recorded"}
    for refused in (
        submit(wire, lease, target="other"),
        tell(wire, lease, "/heartbeat"),
        tell(wire, lease, "/complete", {"output": 1}),
    ):
        assert refused.code == "lease_superseded"


def test_a_lease_that_is_named_is_looked_at(wire: Wire, lease: LeaseKey) -> None:
    """An attempt of another number, and a dispatch that is not of the execution, are refused; a
    submit names its dispatch."""
    late = lease._replace(attempt=2)
    assert wire.in_body_form("POST", path_of(lease, "/heartbeat"), lease=late).status == 409
    foreign = lease._replace(dispatch_id=NOBODY)
    assert submit(wire, foreign).code == "lease_superseded"
    assert submit(wire, lease._replace(dispatch_id="no id")).code == "validation_error"
    assert tell(wire, lease, "/steps", CALL).code == "validation_error"


def test_executions_of_others_and_of_nobody(
    wire: Wire, kernel: Kernel, inbox: Inbox, lease: LeaseKey
) -> None:
    """Forbidden, and not found."""
    others = start(kernel, inbox, OTHER)
    assert tell(wire, others, "/heartbeat").status == 403
    assert submit(wire, others).status == 403
    assert tell(wire, lease._replace(execution_id=NOBODY), "/complete", {}).status == 404


def test_who_signs_in_the_newer_form_names_its_lease(wire: Wire, lease: LeaseKey) -> None:
    """In full."""
    for rest, body in (("/heartbeat", None), ("/steps", CALL), ("/complete", {"output": 1})):
        assert wire.act("POST", path_of(lease, rest), body).code == "validation_error"


def test_an_attempt_of_a_runner_is_no_nameless_agents(wire: Wire, lease: LeaseKey) -> None:
    """What another process has bound stays that one's."""
    runner = lease._replace(runner=NOBODY)
    assert wire.act("POST", path_of(lease, "/heartbeat"), lease=runner).status == 204
    assert tell(wire, lease, "/heartbeat").code == "lease_superseded"
    assert submit(wire, lease).code == "lease_superseded"
