"""Approvals (protocol.md 12)."""

from __future__ import annotations

from uuid import uuid4

from .beginnings import propose, spawned
from .cells import Column, Row, Rule, Scene, Table, rule
from .roads import AGENT, World

__all__ = ["APPROVALS"]


def _asked(world: World, target: str) -> Scene:
    """An execution that waits for an approval of a call."""
    execution_id = world.kernel.create(AGENT).id
    return _asking(world, Scene(execution_id, world.lease(execution_id)), target)


def _asking(world: World, scene: Scene, target: str) -> Scene:
    step_id = propose(world, scene.lease, target)
    (approval,) = (it for it in world.kernel.list_approvals() if it.step_id == step_id)
    return Scene(scene.execution_id, step_id=step_id, approval_id=approval.id)


def pending(world: World) -> Scene:
    return _asked(world, "ask")


def of_bob(world: World) -> Scene:
    return _asked(world, "bob")


def beside_a_subagent(world: World) -> Scene:
    execution_id = world.kernel.create(AGENT).id
    lease = world.lease(execution_id)
    spawned(world, lease)
    return _asking(world, Scene(execution_id, lease), "ask")


def timed_out(world: World) -> Scene:
    scene = pending(world)
    world.clock.advance(901)
    return scene


def past_its_deadline(world: World) -> Scene:
    execution_id = world.mortal.create(AGENT).id
    world.clock.advance(500)
    scene = _asking(world, Scene(execution_id, world.lease(execution_id)), "ask")
    world.clock.advance(501)
    return scene


def expired(world: World) -> Scene:
    scene = timed_out(world)
    world.kernel.get(scene.execution_id)
    return scene


def granted(world: World) -> Scene:
    scene = pending(world)
    world.kernel.grant_approval(scene.approval_id)
    return scene


def denied(world: World) -> Scene:
    scene = pending(world)
    world.kernel.deny_approval(scene.approval_id)
    return scene


def closed(world: World) -> Scene:
    scene = pending(world)
    world.kernel.cancel(scene.execution_id)
    return scene


def approval_removed(world: World) -> Scene:
    scene = closed(world)
    world.outlive()
    return scene


_GOES_ON = "execution.resumed dispatch.queued"


def _decision(name: str, word: str, step: str, who: str, *refusals: Rule) -> Column:
    events = f"approval.{word} step.{step}"
    method = f"{name.partition(' ')[0]}_approval"
    return Column(
        name,
        (
            rule("unknown", "!not_found", "12"),
            rule("decided", "!conflict", "12"),
            *refusals,
            rule("beside", "", "9.7, 12", events),
            rule("", "", "12", f"{events} {_GOES_ON}"),
        ),
        f"POST /v0/approvals/{{id}}/{name.partition(' ')[0]}",
        {"decided_by": who, "rationale": "so"},
        port=method,
        direct=lambda w, s: getattr(w.kernel, method)(s.approval_id, who, "so"),
    )


_FORBIDDEN = rule("named", "!forbidden", "12")

APPROVALS = Table(
    (
        Row("pending", pending, "blocked approval-pending step-awaiting_approval"),
        Row("pending for bob", of_bob, "blocked approval-pending step-awaiting_approval named"),
        Row(
            "beside a subagent",
            beside_a_subagent,
            "blocked approval-pending step-awaiting_approval beside",
        ),
        Row(
            "timed out",
            timed_out,
            "running step-denied decided",
            noticed=f"approval.expired step.denied {_GOES_ON}",
        ),
        Row(
            "past its deadline",
            past_its_deadline,
            "cancelled step-denied decided",
            noticed="execution.cancelled approval.expired step.denied",
        ),
        Row("expired", expired, "running approval-expired step-denied decided"),
        Row("granted", granted, "running approval-granted step-allowed decided"),
        Row("denied", denied, "running approval-denied step-denied decided"),
        Row("closed", closed, "cancelled approval-expired step-denied decided"),
        Row("removed", approval_removed, "unknown"),
        Row("unheard of", lambda _: Scene(approval_id=str(uuid4())), "unknown"),
    ),
    (
        _decision("grant", "granted", "allowed", "", _FORBIDDEN),
        _decision("grant as bob", "granted", "allowed", "bob"),
        _decision("grant as carol", "granted", "allowed", "carol", _FORBIDDEN),
        _decision("deny", "denied", "denied", "", _FORBIDDEN),
        _decision("deny as bob", "denied", "denied", "bob"),
    ),
)
