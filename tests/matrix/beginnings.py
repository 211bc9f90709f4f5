"""Executions with a step in each status, in an attempt that has met nothing yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rebuno_sync.types import Idempotency, LeaseKey, Proposal

from .cells import Scene
from .roads import AGENT, OTHER, World
from .wire_agent import WireAgent

__all__ = ["STEPS", "begin", "call", "grant", "propose", "spawned"]


def call(target: str, args: str = "null", *, strict: bool = False) -> Proposal:
    idempotency = Idempotency.AT_MOST_ONCE if strict else Idempotency.SAFE_TO_RETRY
    return Proposal("tool_call", target, args, idempotency)


def propose(world: World, lease: LeaseKey, target: str, args: str = "null") -> str:
    """Submit a call; the id of its step."""
    return world.agent.submit(lease, call(target, args)).step_id


def grant(world: World, step_id: str) -> None:
    (approval,) = (it for it in world.kernel.list_approvals() if it.step_id == step_id)
    world.kernel.grant_approval(approval.id)


def no_step(world: World, lease: LeaseKey) -> Scene:
    return Scene()


def executing(world: World, lease: LeaseKey) -> Scene:
    return Scene(step_id=propose(world, lease, "subject"))


def succeeded(world: World, lease: LeaseKey) -> Scene:
    scene = executing(world, lease)
    world.agent.complete_step(lease, scene.step_id, "1")
    return scene


def failed(world: World, lease: LeaseKey) -> Scene:
    scene = executing(world, lease)
    world.agent.fail_step(lease, scene.step_id, '{"message": "no"}')
    return scene


def denied(world: World, lease: LeaseKey) -> Scene:
    return Scene(step_id=propose(world, lease, "no-way"), target="no-way")


def put_back(world: World, lease: LeaseKey) -> Scene:
    scene = executing(world, lease)
    world.agent.retrying(lease, scene.step_id, 1, '"no"', 3.0)
    return scene


def spawned(world: World, lease: LeaseKey) -> Scene:
    scene = executing(world, lease)
    spawned_by = {"execution_id": lease.execution_id, "step_id": scene.step_id}
    child = world.kernel.create(OTHER, spawned_by=spawned_by)
    return replace(scene, bystanders=(child.id,))


def awaiting(world: World, lease: LeaseKey) -> Scene:
    return Scene(step_id=propose(world, lease, "ask-me"), target="ask-me")


def granted(world: World, lease: LeaseKey) -> Scene:
    scene = awaiting(world, lease)
    grant(world, scene.step_id)
    return scene


STEPS: dict[str, tuple[Callable[[World, LeaseKey], Scene], str]] = {
    # how it is made, and the words that hold of it
    "no step": (no_step, "step-none"),
    "executing": (executing, "step-executing open"),
    "succeeded": (succeeded, "step-succeeded settled"),
    "failed": (failed, "step-failed settled"),
    "denied": (denied, "step-denied settled"),
    "put back": (put_back, "step-allowed idle tried"),
    "granted": (granted, "step-allowed idle"),
    "spawned": (spawned, "step-executing open waits"),
    "awaiting": (awaiting, "step-awaiting_approval idle"),
}


def begin(world: World, step: str, *, agent: str = AGENT, mortal: bool = False) -> Scene:
    """An execution with a result, and with the step that the writes are about, in an attempt that
    has met neither."""
    kernel = world.mortal if mortal else world.kernel
    execution = kernel.create(agent, {"n": 1})
    if agent != AGENT and isinstance(world.agent, WireAgent):
        world.agent = WireAgent(world.wire, agent)
    lease = world.lease(execution.id)
    result = propose(world, lease, "result")
    world.agent.complete_step(lease, result, '"kept"')
    make, _ = STEPS[step]
    scene = replace(make(world, lease), execution_id=execution.id)
    if step == "awaiting":
        return replace(scene, lease=lease)
    if step != "granted":
        world.agent.release(lease)
    return replace(scene, lease=world.lease(execution.id))
