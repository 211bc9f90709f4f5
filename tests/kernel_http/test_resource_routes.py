"""Resources on the wire (protocol.md 3.8, 9.6): registering, binding, captures beside outcomes."""

from __future__ import annotations

from typing import Any

import pytest

from rebuno_sync.kernel import Kernel
from rebuno_sync.types import LeaseKey

from .moves import Inbox, path_of, start, submit
from .wire import Wire

REPO = {"key": "repo", "driver_id": "git", "configuration": {"url": "u"}, "every_steps": 1}


@pytest.fixture
def lease(wire: Wire, kernel: Kernel, inbox: Inbox) -> LeaseKey:
    """An attempt of an execution that has a resource."""
    lease = start(kernel, inbox)
    assert wire.act("POST", path_of(lease, "/resources"), REPO, lease).status == 200
    return lease


def change(wire: Wire, lease: LeaseKey, args: object = None) -> tuple[str, dict[str, Any]]:
    """A step that changes the resource, and what its decision says of that."""
    decision = submit(wire, lease, args, fields={"resources": ["repo"]}).json
    (touched,) = decision["resources"]
    return decision["step_id"], touched


def told(kernel: Kernel, lease: LeaseKey) -> list[tuple[int, str, dict[str, Any]]]:
    """The events of captures."""
    return [
        (event.event_seq, event.type, event.payload)
        for event in kernel.events(lease.execution_id, limit=1000)
        if event.type.startswith("resource.checkpoint")
    ]


def test_a_view_has_the_protocols_members(wire: Wire, lease: LeaseKey) -> None:
    """What is not known is left out."""
    target = path_of(lease, "/resources")
    view = wire.act("POST", target, REPO, lease).json
    assert view == {
        "key": "repo",
        "driver_id": "git",
        "configuration": {"url": "u"},
        "coverage_reuse": False,
        "every_steps": 1,
        "on_completion": True,
        "registered_seq": 5,
        "generation": 0,
        "count": 0,
        "covered": False,
    }
    bare = {"key": "bare", "driver_id": "git"}
    assert "configuration" not in wire.act("POST", target, bare, lease).json


def test_a_binding_is_no_null(wire: Wire, lease: LeaseKey) -> None:
    """204 for any other JSON, also again; 400 for none, 404 for an unknown resource."""
    target = path_of(lease, "/resources/repo/binding")
    for nothing in ({}, {"binding": None}):
        assert wire.act("POST", target, nothing, lease).code == "validation_error"
    for _ in range(2):
        assert wire.act("POST", target, {"binding": {"at": "/a"}}, lease).status == 204
    assert wire.act("POST", target, {"binding": False}, lease).code == "conflict"
    other = path_of(lease, "/resources/other/binding")
    assert wire.act("POST", other, {"binding": 1}, lease).code == "not_found"
    view = wire.act("POST", path_of(lease, "/resources"), REPO, lease).json
    assert view["binding"] == {"at": "/a"}


def test_a_capture_comes_with_an_outcome(wire: Wire, kernel: Kernel, lease: LeaseKey) -> None:
    """It covers from the event of the outcome on."""
    step_id, touched = change(wire, lease)
    assert touched == {"key": "repo", "generation": 1, "due": True}
    captures = [{"key": "repo", "generation": 1, "checkpoint_ref": "c1"}]
    body = {"result": 7, "captures": captures, "capture_failures": []}
    answer = wire.act("POST", path_of(lease, f"/steps/{step_id}/complete"), body, lease)
    assert answer.json == {"decision": "recorded"}
    ((seq, kind, payload),) = told(kernel, lease)
    assert (kind, payload["checkpoint_ref"]) == ("resource.checkpointed", "c1")
    assert payload["covered_seq"] == seq - 1
    assert kernel.events(lease.execution_id, seq - 2, 1)[0].type == "step.succeeded"
    points = wire.operate("GET", path_of(lease, "/fork-points")).json
    assert points["checkpoints"] == [
        {"key": "repo", "generation": 1, "checkpoint_ref": "c1", "covered_seq": seq - 1}
    ]
    assert wire.act("POST", path_of(lease, "/resources"), REPO, lease).json["covered"]


def test_a_failed_step_may_tell_of_captures_too(
    wire: Wire, kernel: Kernel, lease: LeaseKey
) -> None:
    """Of one that was made, and of one that could not be."""
    step_id, _ = change(wire, lease)
    body = {
        "error": "broken",
        "captures": [{"key": "repo", "generation": 1, "checkpoint_ref": "c1"}],
        "capture_failures": [{"key": "repo", "generation": 1, "error": "no room"}],
    }
    answer = wire.act("POST", path_of(lease, f"/steps/{step_id}/fail"), body, lease)
    assert answer.json == {"decision": "recorded"}
    assert [(kind, payload.get("error")) for _, kind, payload in told(kernel, lease)] == [
        ("resource.checkpoint_failed", "no room"),
        ("resource.checkpointed", None),
    ]


def test_a_capture_beside_another_writer_is_of_no_use(
    wire: Wire, kernel: Kernel, lease: LeaseKey
) -> None:
    """The outcome is recorded all the same; the step whose outcome it is does not count."""
    first, _ = change(wire, lease, 1)
    _, touched = change(wire, lease, 2)
    captures = [{"key": "repo", "generation": touched["generation"], "checkpoint_ref": "c"}]
    target = path_of(lease, f"/steps/{first}/complete")
    answer = wire.act("POST", target, {"captures": captures}, lease)
    assert answer.json == {"decision": "recorded"}
    assert [payload["error"] for _, _, payload in told(kernel, lease)] == ["writers_active"]


def test_captures_by_themselves(wire: Wire, kernel: Kernel, lease: LeaseKey) -> None:
    """They cover up to the latest event."""
    captures = [{"key": "repo", "generation": 0, "checkpoint_ref": "c0"}]
    target = path_of(lease, "/resources/checkpoints")
    assert wire.act("POST", target, {"captures": captures}, lease).status == 204
    ((seq, _, payload),) = told(kernel, lease)
    assert payload["covered_seq"] == seq - 1


@pytest.mark.parametrize(
    "captures",
    [7, "c", [7], [{"key": 1}], [{"key": "repo", "generation": "1"}], [{"kee": "repo"}]],
    ids=repr,
)
def test_captures_that_make_no_sense(
    wire: Wire, kernel: Kernel, lease: LeaseKey, captures: object
) -> None:
    """400, and the outcome that they came with is not recorded."""
    step_id, _ = change(wire, lease)
    target = path_of(lease, f"/steps/{step_id}/complete")
    answer = wire.act("POST", target, {"result": 1, "captures": captures}, lease)
    assert (answer.status, answer.code) == (400, "validation_error")
    assert kernel.get_step(lease.execution_id, step_id).status == "executing"
