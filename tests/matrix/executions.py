"""Executions, their attempts and their steps: states, and what still comes for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import uuid4

from support.folded import Story

from rebuno_sync.types import (
    Capture,
    Idempotency,
    LeaseKey,
    Proposal,
    Registration,
    Spawn,
    Wake,
)

from .cells import DIRECT, HTTP, NO_STEP, Column, Row, Rule, Scene, Table, rule
from .roads import AGENT, DAY, OTHER, WireAgent, World

__all__ = ["EXECUTIONS", "begin"]

# -- rows: a step in each status …


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


# -- … and an execution with its lease in each


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
    world.clock.advance(DAY + 1)
    world.kernel.core.retention.sweep()
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


# -- rows besides: what no attempt has begun


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

# -- columns: submits (protocol.md 7.2, 7.3)

_STARTED = "step.proposed step.allowed step.executing"
_ASKED = "step.proposed step.awaiting_approval approval.requested execution.blocked"

UNDER_LEASE = (
    rule("unknown", "!not_found", "7.2 (4)"),
    rule("foreign", "!forbidden", "7.2 (4)"),
    rule("ended", "execution_terminal", "7.2 (5)"),
    rule("unheld", "!lease_superseded", "7.2 (6)"),
)

AGAIN = (
    *UNDER_LEASE,
    rule("step-none", "proceed", "7.2 (16)", _STARTED),
    rule("step-succeeded", "replay", "7.3"),
    rule("step-failed", "replay", "7.3"),
    rule("step-denied", "denied", "7.3"),
    rule("step-allowed tried", "proceed", "17 attempts"),
    rule("step-allowed", "proceed", "7.3", "step.executing"),
)


def _submit(name: str, target: str, *rules: Rule, resources: tuple[str, ...] = ()) -> Column:
    body = {"kind": "tool_call", "target": target, "args": None, "resources": list(resources)}
    proposal = call(target)._replace(resources=resources)
    return Column(
        name,
        (*UNDER_LEASE, *rules),
        "POST /v0/executions/{id}/steps",
        body,
        port="agent.submit",
        direct=lambda w, s: w.kernel.agent.submit(s.lease, proposal),
    )


def _submit_again(name: str, *rules: Rule, strict: bool) -> Column:
    return Column(
        name,
        (*AGAIN, *rules),
        "POST /v0/executions/{id}/steps",
        lambda s: {
            "kind": "tool_call",
            "target": s.target,
            "args": None,
            "idempotency": call("", strict=strict).idempotency,
        },
        port="agent.submit",
        direct=lambda w, s: w.kernel.agent.submit(s.lease, call(s.target, strict=strict)),
        about_step=True,
    )


SUBMITS = (
    _submit("submit new", "new", rule("", "proceed", "7.2 (16)", _STARTED)),
    _submit(
        "submit denied", "no-never", rule("", "denied", "7.2 (16)", "step.proposed step.denied")
    ),
    _submit("submit asking", "ask-new", rule("", "blocked", "7.2 (16)", _ASKED, lease="newest")),
    _submit("submit limited", "never", rule("", "rate_limited", "7.4", "step.rate_limited")),
    _submit(
        "submit parking",
        "later",
        rule("", "blocked", "7.4", "step.rate_limited dispatch.queued", lease="newest"),
    ),
    _submit(
        "submit changing nothing known",
        "new",
        rule("", "!validation_error", "7.2 (10)"),
        resources=("nothing",),
    ),
    _submit_again("submit again", rule("step-executing", "proceed", "7.3"), strict=False),
    _submit_again(
        "submit again strictly",
        rule("step-executing", "replay", "7.3", "step.failed"),
        strict=True,
    ),
)

# -- outcomes (8.1, 8.2), pieces (8.4) and tries (17)

STEP_FOUND = (
    rule("unknown", "!not_found", "8.1"),
    rule("step-none", "!not_found", "8.1"),
    rule("foreign", "!forbidden", "8.1"),
)
OUTCOME = (
    *STEP_FOUND,
    rule("ended", "execution_terminal", "8.1 (1)"),
    rule("settled", "replay", "8.1 (2)"),
)
_NOT_EXECUTING = rule("idle", "!conflict", "8.1 (3)")
_OUTDATED = rule("outdated", "!lease_superseded", "5.4")

_STEP = "POST /v0/executions/{id}/steps/{step}"

OUTCOMES = (
    Column(
        "complete step",
        (*OUTCOME, _NOT_EXECUTING, _OUTDATED, rule("", "recorded", "8.1 (5)", "step.succeeded")),
        f"{_STEP}/complete",
        {"result": 2},
        port="agent.complete_step",
        direct=lambda w, s: w.kernel.agent.complete_step(s.lease, s.step_id, "2"),
        about_step=True,
    ),
    Column(
        "fail step",
        (*OUTCOME, _NOT_EXECUTING, _OUTDATED, rule("", "recorded", "8.2", "step.failed")),
        f"{_STEP}/fail",
        {"error": {"message": "late"}},
        port="agent.fail_step",
        direct=lambda w, s: w.kernel.agent.fail_step(s.lease, s.step_id, '{"message": "late"}'),
        about_step=True,
    ),
    Column(
        "piece",
        (
            *STEP_FOUND,
            _OUTDATED,
            rule("open", "", "8.4"),
            rule("", "!conflict", "8.4"),
        ),
        f"{_STEP}/stream",
        {"seq": 0, "data": "late"},
        port="agent.delta",
        direct=lambda w, s: w.kernel.agent.delta(s.lease, s.step_id, 0, "late"),
        about_step=True,
    ),
    Column(
        "failed try",
        (
            *OUTCOME,
            rule("tried", "recorded", "17 attempts"),
            _NOT_EXECUTING,
            _OUTDATED,
            rule("", "recorded", "17 attempts", "step.retrying"),
        ),
        f"{_STEP}/attempt",
        {"attempt": 1, "error": "late", "retry_in": 1},
        port="agent.retrying",
        direct=lambda w, s: w.kernel.agent.retrying(s.lease, s.step_id, 1, '"late"', 1.0),
        about_step=True,
    ),
    Column(
        "next try",
        (
            *OUTCOME,
            rule("tried unheld", "!lease_superseded", "17 attempts"),
            rule("tried", "recorded", "17 attempts", "step.executing"),
            rule("", "!conflict", "17 attempts"),
        ),
        f"{_STEP}/attempt",
        {"attempt": 2},
        port="agent.begin_try",
        direct=lambda w, s: w.kernel.agent.begin_try(s.lease, s.step_id, 2),
        about_step=True,
    ),
)

# -- the lease and the end (5.3, 5.4, 9.4, 9.7)

_EXECUTION = "POST /v0/executions/{id}"

FENCED = (
    rule("unknown", "!not_found", "5.4"),
    rule("foreign", "!forbidden", "5.4"),
    rule("ended", "!execution_terminal", "5.4"),
    rule("unheld", "!lease_superseded", "5.4"),
)

LEASES = (
    Column(
        "heartbeat",
        (
            rule("unknown", "!lease_superseded", "5.3", road=DIRECT),
            rule("unknown", "!not_found", "5.4"),
            rule("foreign", "!forbidden", "5.4"),
            rule("unheld", "!lease_superseded", "5.4"),
            rule("", "", "5.3"),
        ),
        f"{_EXECUTION}/heartbeat",
        port="agent.renew",
        direct=lambda w, s: w.kernel.agent.renew([s.lease])[0],
    ),
    Column(
        "heartbeats",
        (
            rule("unheld", "!lease_superseded", "17 leases"),
            rule("foreign", "!lease_superseded", "17 leases"),
            rule("", "", "17 leases"),
        ),
        "POST /v0/leases",
        lambda s: {
            "leases": [
                {
                    "execution_id": s.lease.execution_id,
                    "dispatch_id": s.lease.dispatch_id,
                    "dispatch_attempt": s.lease.attempt,
                    **({"runner": s.lease.runner} if s.lease.runner else {}),
                }
            ]
        },
        port="agent.renew",
        direct=lambda w, s: w.kernel.agent.renew([s.lease, s.lease])[1],
    ),
    Column(
        "complete",
        (*FENCED, rule("", "", "9.4", "execution.completed", lease="newest")),
        f"{_EXECUTION}/complete",
        {"output": "late", "state": {"n": 2}},
        port="agent.complete",
        direct=lambda w, s: w.kernel.agent.complete(s.lease, '"late"', '{"n": 2}'),
        about_step=True,
    ),
    Column(
        "fail",
        (*FENCED, rule("", "", "9.4", "execution.failed", lease="newest")),
        f"{_EXECUTION}/fail",
        {"error": "late"},
        port="agent.fail",
        direct=lambda w, s: w.kernel.agent.fail(s.lease, "late"),
    ),
    Column(
        "suspend",
        (
            *FENCED,
            rule("waits", "suspended", "9.7", "execution.blocked", lease="newest"),
            rule("", "not suspended", "9.7"),
        ),
        f"{_EXECUTION}/suspend",
        port="agent.suspend",
        direct=lambda w, s: w.kernel.agent.suspend(s.lease),
        about_step=True,
    ),
    Column(
        "sleep",
        (
            *FENCED,
            rule("step-none", "!not_found", "17 wake"),
            rule("step-executing", "suspended", "17 wake", "execution.blocked", lease="newest"),
            rule("", "not suspended", "17 wake"),
        ),
        f"{_EXECUTION}/suspend",
        lambda s: {"step_id": s.step_id, "seconds": 1000},
        port="agent.suspend",
        direct=lambda w, s: w.kernel.agent.suspend(s.lease, Wake(s.step_id, 1000.0)),
        about_step=True,
    ),
    Column(
        "release",
        (*FENCED, rule("", "", "17 release", lease="newest")),
        f"{_EXECUTION}/release",
        port="agent.release",
        direct=lambda w, s: w.kernel.agent.release(s.lease),
        about_step=True,
    ),
    Column(
        "release interrupted",
        (*FENCED, rule("", "", "17 release", lease="newest")),
        f"{_EXECUTION}/release",
        query="?interrupted=1",
        port="agent.release",
        direct=lambda w, s: w.kernel.agent.release(s.lease, interrupted=True),
    ),
    Column(
        "batch",
        (
            *STEP_FOUND,
            rule("ended", "execution_terminal execution_terminal", "8.1 (1), 7.2 (5)"),
            rule("settled", "replay", "17 batch"),
            _NOT_EXECUTING,
            _OUTDATED,
            rule("unheld", "recorded !lease_superseded", "5.4", "step.succeeded"),
            rule("", "recorded proceed", "17 batch", f"step.succeeded {_STARTED}"),
        ),
        f"{_EXECUTION}/batch",
        lambda s: {
            "operations": [
                {"op": "complete_step", "step_id": s.step_id, "result": 2},
                {"op": "submit", "kind": "tool_call", "target": "new", "args": None},
            ]
        },
        about_step=True,
    ),
)

# -- resources (9.6); ``others`` has their own states

RESOURCES = (
    Column(
        "register resource",
        (*FENCED, rule("", "resource", "9.6", "resource.registered")),
        f"{_EXECUTION}/resources",
        {"key": "disk", "driver_id": "disk"},
        port="agent.resources.register",
        direct=lambda w, s: w.kernel.agent.resources.register(
            s.lease, Registration("disk", "disk")
        ),
    ),
    Column(
        "bind resource",
        (*FENCED, rule("", "!not_found", "9.6")),
        f"{_EXECUTION}/resources/{{key}}/binding",
        {"binding": "here"},
        port="agent.resources.bind",
        direct=lambda w, s: w.kernel.agent.resources.bind(s.lease, "disk", '"here"'),
    ),
    Column(
        "capture",
        (*FENCED, rule("", "", "9.6", "resource.checkpoint_failed")),
        f"{_EXECUTION}/resources/checkpoints",
        {"captures": [{"key": "disk", "generation": 0, "checkpoint_ref": "late"}]},
        port="agent.resources.keep",
        direct=lambda w, s: w.kernel.agent.resources.keep(
            s.lease, [Capture("disk", 0, "late")], []
        ),
    ),
)

# -- operators (9.1, 9.4, 9.5, 9.7)


def _cancels(before: Story) -> str:
    """What a cancel writes (protocol.md 9.4): the end, then each approval, then each step that is
    under way, between two tries too."""
    pending = [it for it in before.approvals.values() if it.status == "pending"]
    last = {it.payload["step_id"]: it.type for it in before.events if it.type.startswith("step.")}
    running = [it for it in last.values() if it in ("step.executing", "step.retrying")]
    return " ".join(
        ["execution.cancelled"]
        + ["approval.expired step.denied"] * len(pending)
        + ["step.cancelled"] * len(running)
    )


def _fork(name: str, at_seq: int, *rules: Rule) -> Column:
    return Column(
        name,
        (
            rule("unknown", "!not_found", "9.5"),
            *rules,
        ),
        f"{_EXECUTION}/fork",
        {"at_seq": at_seq},
        port="fork",
        direct=lambda w, s: w.kernel.fork(s.execution_id, at_seq),
    )


def _claimed(world: World, scene: Scene) -> str:
    return "nothing" if world.claim(scene.execution_id) is None else "claimed"


def _imported_again(world: World, scene: Scene) -> object:
    return world.kernel.import_execution(world.kernel.export_execution(scene.execution_id))


OPERATORS = (
    Column(
        "cancel",
        (
            rule("tombstone", "!conflict", "9.4"),
            rule("unknown", "!not_found", "9.4"),
            rule("ended", "!conflict", "9.4"),
            rule("held", "", "9.4", _cancels, lease="newest"),
            rule("", "", "9.4", _cancels),
        ),
        f"{_EXECUTION}/cancel",
        port="cancel",
        direct=lambda w, s: w.kernel.cancel(s.execution_id),
        about_step=True,
    ),
    _fork("fork", 1, rule("", "running", "9.5")),
    _fork("fork before the log", 0, rule("", "!validation_error", "9.5")),
    _fork("fork beyond the log", 10_000, rule("", "!validation_error", "9.5")),
    Column(
        "spawn",
        (
            rule("tombstone", "!conflict", "9.7"),
            rule("unknown", "!not_found", "9.7"),
            rule("spawned", "cancelled", "9.1"),
            rule("waits", "running", "9.1"),
            rule("ended", "!conflict", "9.7"),
            rule("step-none", "!validation_error", "9.7"),
            rule("open", "running", "9.7"),
            rule("", "!conflict", "9.7"),
        ),
        "POST /v0/executions",
        lambda s: {
            "agent_id": OTHER,
            "spawned_by": {"execution_id": s.execution_id, "step_id": s.step_id},
        },
        port="agent.spawn",
        direct=lambda w, s: w.kernel.agent.spawn(
            LeaseKey(s.execution_id, *s.lease[1:]), Spawn(OTHER, "null", s.step_id)
        ),
        about_step=True,
    ),
    Column(
        "go on from",
        (
            rule("unknown", "!not_found", "9.1"),
            rule("completed", "running", "9.1"),
            rule("", "!conflict", "9.1"),
        ),
        "POST /v0/executions",
        lambda s: {"agent_id": s.agent or AGENT, "parent_execution_id": s.execution_id},
        port="create",
        direct=lambda w, s: w.kernel.create(AGENT, parent_execution_id=s.execution_id),
    ),
    Column(
        "claim",
        (
            rule("tombstone", "nothing", "5.2"),
            rule("unknown", "!not_found", "5.2"),
            rule("held due", "claimed", "5.3", "dispatch.acked", lease="outdated"),
            rule("own", "claimed", "5.2", "dispatch.acked", lease="outdated"),
            rule("first", "claimed", "5.2", "dispatch.acked", lease="held"),
            rule("due", "claimed", "5.2", "dispatch.acked"),
            rule("", "nothing", "5.2"),
        ),
        port="claim",
        direct=_claimed,
        anywhere=True,
    ),
    Column(
        "import again",
        (
            rule("unknown", "!not_found", "extension"),
            rule("", "!conflict", "extension"),
        ),
        port="import_execution",
        direct=_imported_again,
    ),
)

EXECUTIONS = Table(ROWS, (*SUBMITS, *OUTCOMES, *LEASES, *RESOURCES, *OPERATORS))
