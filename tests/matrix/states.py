"""What can have become of an execution and of its lease, by the time that a write comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import uuid4

from rebuno_sync.types import LeaseKey, Wake

from .beginnings import STEPS, begin, call, grant, propose
from .cells import DIRECT, HTTP, NO_STEP, Row, Scene
from .roads import AGENT, OTHER, World

__all__ = ["ROWS", "STATES", "State"]


def as_it_is(world: World, scene: Scene) -> Scene:
    return scene


def lease_over(world: World, scene: Scene) -> Scene:
    world.clock.advance(500)
    return scene


def reclaimed(world: World, scene: Scene) -> Scene:
    world.clock.advance(500)
    world.lease(scene.execution_id)
    return scene


def released(world: World, scene: Scene) -> Scene:
    world.agent.release(scene.lease)
    return scene


def backing_off(world: World, scene: Scene) -> Scene:
    world.agent.release(scene.lease, interrupted=True)
    return scene


def blocked(world: World, scene: Scene) -> Scene:
    propose(world, scene.lease, "ask-another")
    return scene


def resumed(world: World, scene: Scene) -> Scene:
    grant(world, propose(world, scene.lease, "ask-another"))
    return scene


def elsewhere(world: World, scene: Scene) -> Scene:
    resumed(world, scene)
    world.lease(scene.execution_id)
    return scene


def suspended(world: World, scene: Scene) -> Scene:
    step_id = propose(world, scene.lease, "delegate")
    spawned_by = {"execution_id": scene.execution_id, "step_id": step_id}
    child = world.kernel.create(OTHER, spawned_by=spawned_by)
    assert world.agent.suspend(scene.lease)
    return replace(scene, bystanders=(*scene.bystanders, child.id))


def awaited(world: World, scene: Scene) -> Scene:
    assert world.agent.suspend(scene.lease)
    return scene


def sleeping(world: World, scene: Scene) -> Scene:
    assert world.agent.suspend(scene.lease, Wake(propose(world, scene.lease, "sleep"), 100.0))
    return scene


def slept(world: World, scene: Scene) -> Scene:
    sleeping(world, scene)
    world.clock.advance(101)
    world.kernel.get(scene.execution_id)
    return scene


def parked(world: World, scene: Scene) -> Scene:
    assert world.agent.submit(scene.lease, call("later")).decision == "blocked"
    return scene


def completed(world: World, scene: Scene) -> Scene:
    world.agent.complete(scene.lease, '"done"')
    return scene


def gone_wrong(world: World, scene: Scene) -> Scene:
    world.agent.fail(scene.lease, "it went wrong")
    return scene


def cancelled(world: World, scene: Scene) -> Scene:
    world.kernel.cancel(scene.execution_id)
    return scene


def exhausted(world: World, scene: Scene) -> Scene:
    world.clock.advance(500)
    while world.claim(scene.execution_id) is not None:
        world.clock.advance(500)
    assert world.kernel.get(scene.execution_id).failure_reason == "dispatch_exhausted"
    return scene


def past_deadline(world: World, scene: Scene) -> Scene:
    world.clock.advance(1001)
    return scene


def forked(world: World, scene: Scene) -> Scene:
    last = len(world.kernel.events(scene.execution_id, limit=1000))
    fork = world.kernel.fork(scene.execution_id, last)
    steps = {it.target: it.step_id for it in world.kernel.list_steps(fork.id)}
    return replace(
        scene,
        execution_id=fork.id,
        lease=world.lease(fork.id),
        step_id=steps.get(scene.target, NO_STEP),
    )


def removed(world: World, scene: Scene) -> Scene:
    completed(world, scene)
    world.outlive()
    return scene


def of_another_dispatch(world: World, scene: Scene) -> Scene:
    other = world.lease(world.kernel.create(AGENT).id)
    return replace(scene, lease=other._replace(execution_id=scene.execution_id))


def of_no_dispatch(world: World, scene: Scene) -> Scene:
    return replace(scene, lease=LeaseKey(scene.execution_id, str(uuid4()), 1))


def of_another_runner(world: World, scene: Scene) -> Scene:
    first, second = str(uuid4()), str(uuid4())
    world.agent.renew([scene.lease._replace(runner=first)])
    return replace(scene, lease=scene.lease._replace(runner=second))


def of_a_process(world: World, scene: Scene) -> Scene:
    world.agent.release(scene.lease)
    claim = world.kernel.claim(scene.execution_id)
    assert claim is not None
    return replace(scene, lease=claim.lease)


@dataclass(frozen=True, slots=True)
class State:
    """Of an execution. ``words`` hold in it; ``cancels``: what runs then has been cancelled."""

    reach: Callable[[World, Scene], Scene]
    words: str
    steps: str = "executing"
    cancels: bool = False
    mortal: bool = False
    noticed: str = ""
    agent: str = AGENT
    roads: tuple[str, ...] = (DIRECT, HTTP)


_ALL_STEPS = "executing, no step, succeeded, failed, denied, put back, granted, spawned"
_OVER = "ended unheld newest dispatch-exhausted"
_DEADLINE = "execution.cancelled step.cancelled"

STATES: dict[str, State] = {
    "running": State(as_it_is, "running held dispatch-in_flight", _ALL_STEPS),
    "lease over": State(lease_over, "running held due dispatch-in_flight"),
    "reclaimed": State(reclaimed, "running unheld outdated", "executing, succeeded, put back"),
    "released": State(
        released, "running unheld newest due own dispatch-pending", "executing, put back"
    ),
    "backing off": State(backing_off, "running unheld newest dispatch-failed"),
    "blocked": State(
        blocked,
        "blocked unheld newest dispatch-exhausted",
        "executing, succeeded, put back, granted",
    ),
    "asked": State(as_it_is, "blocked unheld newest dispatch-exhausted", "awaiting"),
    "resumed": State(resumed, "running unheld newest due dispatch-exhausted"),
    "elsewhere": State(
        elsewhere, "running unheld newest dispatch-exhausted", "executing, succeeded, put back"
    ),
    "suspended": State(
        suspended, "blocked unheld newest dispatch-exhausted", "executing, put back"
    ),
    "awaited": State(awaited, "blocked unheld newest dispatch-exhausted", "spawned"),
    "sleeping": State(sleeping, "blocked unheld newest dispatch-exhausted", "executing, put back"),
    "slept": State(slept, "running unheld newest due dispatch-exhausted"),
    "parked": State(parked, "running unheld newest dispatch-exhausted"),
    "completed": State(completed, f"completed {_OVER}", "executing, succeeded, put back, spawned"),
    "failed": State(gone_wrong, f"failed {_OVER}", "executing, failed, granted"),
    "cancelled": State(
        cancelled, f"cancelled {_OVER}", "executing, succeeded, put back, granted", cancels=True
    ),
    "exhausted": State(exhausted, "failed ended unheld outdated"),
    "past its deadline": State(
        past_deadline, f"cancelled {_OVER}", cancels=True, mortal=True, noticed=_DEADLINE
    ),
    "asked past its deadline": State(
        past_deadline,
        f"cancelled {_OVER}",
        "awaiting",
        cancels=True,
        mortal=True,
        noticed="execution.cancelled approval.expired step.denied",
    ),
    "fork": State(forked, "running held", "succeeded, no step, failed, denied"),
    "removed": State(removed, "unknown unheld outdated"),
    "of another dispatch": State(of_another_dispatch, "running unheld outdated"),
    "of no dispatch": State(of_no_dispatch, "running unheld outdated"),
    "of another runner": State(of_another_runner, "running unheld outdated", roads=(HTTP,)),
    "of a process": State(of_a_process, "running unheld outdated", roads=(HTTP,)),
    "of another agent": State(as_it_is, "running held foreign", agent=OTHER, roads=(HTTP,)),
}


def _row(name: str, state: State, step: str) -> Row:
    def reach(world: World) -> Scene:
        return state.reach(world, begin(world, step, agent=state.agent, mortal=state.mortal))

    words = STEPS[step][1]
    if state.cancels and ("open" in words or "tried" in words):
        words = "step-cancelled settled"
    if state.cancels and "step-awaiting_approval" in words:
        words = "step-denied settled"
    if "unknown" in state.words:
        words = ""
    if "ended" in state.words:
        words = words.replace("waits", "spawned")
    return Row(
        f"{name}-{step}",
        reach,
        f"{state.words} {words}",
        noticed=state.noticed,
        of_step=not state.steps.startswith(step),
        roads=state.roads,
    )


# -- besides: what no attempt has begun, and what is nobody's any more


def _first_dispatch(world: World, execution_id: str) -> LeaseKey:
    """The lease that a first attempt would have."""
    found = (it.payload.get("dispatch_id") for it in world.kernel.events(execution_id))
    dispatch_id = next((it for it in found if it), str(uuid4()))
    return LeaseKey(execution_id, dispatch_id, 1)


def queued(world: World) -> Scene:
    execution_id = world.kernel.create(AGENT).id
    return Scene(execution_id, _first_dispatch(world, execution_id))


def in_line(world: World) -> Scene:
    session = str(uuid4())
    first = world.kernel.create(AGENT, session=session).id
    execution_id = world.kernel.create(AGENT, session=session).id
    return Scene(execution_id, _first_dispatch(world, execution_id), bystanders=(first,))


def in_line_past_its_deadline(world: World) -> Scene:
    session = str(uuid4())
    first = world.kernel.create(AGENT, session=session).id
    execution_id = world.mortal.create(AGENT, session=session).id
    lease = _first_dispatch(world, execution_id)
    world.clock.advance(1001)
    return Scene(execution_id, lease, bystanders=(first,))


def leading(world: World) -> Scene:
    session = str(uuid4())
    execution_id = world.kernel.create(AGENT, session=session).id
    second = world.kernel.create(AGENT, session=session).id
    return Scene(execution_id, world.lease(execution_id), bystanders=(second,))


def with_its_parent(world: World) -> Scene:
    """A subagent's execution whose parent has failed."""
    parent = begin(world, "executing")
    spawned_by = {"execution_id": parent.execution_id, "step_id": parent.step_id}
    child = world.kernel.create(AGENT, spawned_by=spawned_by)
    lease = world.lease(child.id)
    step_id = propose(world, lease, "subject")
    world.agent.fail(parent.lease, "it went wrong")
    return Scene(child.id, lease, step_id)


def tombstone(world: World) -> Scene:
    execution_id = world.kernel.create(AGENT, idempotency_key=str(uuid4())).id
    scene = Scene(execution_id, world.lease(execution_id))
    return removed(world, scene)


def unheard_of(world: World) -> Scene:
    execution_id = str(uuid4())
    return Scene(execution_id, LeaseKey(execution_id, str(uuid4()), 1))


_BESIDES = (
    Row("queued", queued, "running unheld outdated due first step-none"),
    Row("in line", in_line, "pending unheld outdated step-none"),
    Row(
        "in line past its deadline",
        in_line_past_its_deadline,
        "cancelled ended unheld outdated step-none",
        noticed="execution.cancelled",
    ),
    Row("leading a session", leading, "running held step-none"),
    Row("with its parent", with_its_parent, f"cancelled {_OVER} step-cancelled settled"),
    Row("tombstone", tombstone, "unknown tombstone unheld outdated"),
    Row("unheard of", unheard_of, "unknown unheld outdated"),
)

ROWS = (
    *(
        _row(name, state, step)
        for name, state in STATES.items()
        for step in state.steps.split(", ")
    ),
    *_BESIDES,
)
