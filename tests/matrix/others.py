"""What besides executions has states: approvals, keys, sessions, resources and agents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

from rebuno_sync.types import Capture, Execution, LeaseKey, Proposal, Registration

from .cells import Column, Row, Rule, Scene, Table, rule
from .executions import begin, propose, spawned
from .roads import AGENT, DAY, SECRET, World

__all__ = ["AGENTS", "API_KEYS", "APPROVALS", "KEYS", "RESOURCES", "SESSIONS"]

# -- approvals (protocol.md 12)


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
    _outlive(world)
    return scene


def _outlive(world: World) -> None:
    world.clock.advance(DAY + 1)
    world.kernel.core.retention.sweep()


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

# -- API keys (1.3, 2.3)

_SCOPES = ["executions:read"]


def active(world: World) -> Scene:
    key = world.kernel.create_key("one", _SCOPES)
    return Scene(key=key.id, token=key.token or "")


def rotated(world: World) -> Scene:
    """Known by its old token."""
    scene = active(world)
    world.kernel.rotate_key(scene.key)
    return scene


def renewed(world: World) -> Scene:
    scene = active(world)
    return replace(scene, token=world.kernel.rotate_key(scene.key).token or "")


def revoked(world: World) -> Scene:
    scene = active(world)
    world.kernel.revoke_key(scene.key)
    return scene


def revoked_after_rotation(world: World) -> Scene:
    scene = renewed(world)
    world.kernel.revoke_key(scene.key)
    return scene


_NO_ENTRY = rule("no-entry", "!unauthorized", "1.3")

API_KEYS = Table(
    (
        Row("active", active, ""),
        Row("rotated", rotated, "no-entry"),
        Row("renewed", renewed, ""),
        Row("revoked", revoked, "revoked no-entry"),
        Row("revoked after rotation", revoked_after_rotation, "revoked no-entry"),
        Row(
            "unheard of",
            lambda _: Scene(key=str(uuid4()), token=f"rbk_{uuid4()}.{'x' * 43}"),
            "unknown no-entry",
        ),
    ),
    (
        Column("use", (_NO_ENTRY, rule("", "page", "1.3")), "GET /v0/executions", by_token=True),
        Column(
            "use beyond its scopes",
            (_NO_ENTRY, rule("", "!forbidden", "1.3")),
            "POST /v0/executions",
            {"agent_id": AGENT},
            by_token=True,
        ),
        Column(
            "create another",
            (rule("", "token", "2.3"),),
            "POST /v0/api-keys",
            {"name": "another", "scopes": _SCOPES},
            port="create_key",
            direct=lambda w, s: w.kernel.create_key("another", _SCOPES),
        ),
        Column(
            "rotate",
            (
                rule("unknown", "!not_found", "2.3"),
                rule("revoked", "!conflict", "2.3"),
                rule("", "token", "2.3"),
            ),
            "POST /v0/api-keys/{id}/rotate",
            port="rotate_key",
            direct=lambda w, s: w.kernel.rotate_key(s.key),
        ),
        Column(
            "revoke",
            (rule("unknown", "!not_found", "2.3"), rule("", "", "2.3")),
            "DELETE /v0/api-keys/{id}",
            port="revoke_key",
            direct=lambda w, s: w.kernel.revoke_key(s.key),
        ),
    ),
)

# -- sessions (9.2)


def _finished(world: World, **more: str) -> Execution:
    execution = world.kernel.create(AGENT, **more)
    world.agent.complete(world.lease(execution.id), '"done"')
    return world.kernel.get(execution.id)


def _session(world: World) -> Scene:
    """A session without executions, and one outside that has completed."""
    return Scene(_finished(world).id, session=str(uuid4()))


def busy(world: World) -> Scene:
    scene = _session(world)
    world.kernel.create(AGENT, session=scene.session)
    return scene


def lined_up(world: World) -> Scene:
    scene = busy(world)
    world.kernel.create(AGENT, session=scene.session)
    return scene


def held_up(world: World) -> Scene:
    """Its execution waits for a person."""
    scene = _session(world)
    execution_id = world.kernel.create(AGENT, session=scene.session).id
    propose(world, world.lease(execution_id), "ask")
    return scene


def over_due(world: World) -> Scene:
    """Its execution has a deadline that nobody has noticed."""
    scene = _session(world)
    busy_with = world.mortal.create(AGENT, session=scene.session).id
    world.clock.advance(1001)
    return replace(scene, bystanders=(busy_with,))


def done(world: World) -> Scene:
    scene = _session(world)
    _finished(world, session=scene.session)
    return scene


def called_off(world: World) -> Scene:
    scene = _session(world)
    world.kernel.cancel(world.kernel.create(AGENT, session=scene.session).id)
    return scene


def session_removed(world: World) -> Scene:
    scene = done(world)
    _outlive(world)
    return replace(scene, execution_id=_finished(world).id)


_USED = rule("used", "!conflict", "9.1, 9.5")
_BEGINS = rule("", "running", "9.2")

SESSIONS = Table(
    (
        Row("new", _session, "completed"),
        Row("busy", busy, "completed used busy"),
        Row("lined up", lined_up, "completed used busy"),
        Row("held up", held_up, "completed used busy"),
        Row("past its deadline", over_due, "completed used"),
        Row("done", done, "completed used"),
        Row("called off", called_off, "completed used"),
        Row("removed", session_removed, "completed"),
    ),
    (
        Column(
            "create in it",
            (rule("busy", "pending", "9.2"), _BEGINS),
            "POST /v0/executions",
            lambda s: {"agent_id": AGENT, "session": s.session},
            port="create",
            direct=lambda w, s: w.kernel.create(AGENT, session=s.session),
        ),
        Column(
            "begin it with a parent",
            (_USED, _BEGINS),
            "POST /v0/executions",
            lambda s: {
                "agent_id": AGENT,
                "session": s.session,
                "parent_execution_id": s.execution_id,
            },
            port="create",
            direct=lambda w, s: w.kernel.create(
                AGENT, session=s.session, parent_execution_id=s.execution_id
            ),
        ),
        Column(
            "begin it with a fork",
            (_USED, _BEGINS),
            "POST /v0/executions/{id}/fork",
            lambda s: {"at_seq": 1, "session": s.session},
            port="fork",
            direct=lambda w, s: w.kernel.fork(s.execution_id, 1, session=s.session),
        ),
    ),
)

# -- idempotency keys (9.1)


def _keyed(world: World, end: Callable[[World, Scene], object] | None = None) -> Scene:
    """An execution with a key, in its first attempt."""
    key = str(uuid4())
    execution_id = world.kernel.create(AGENT, idempotency_key=key).id
    scene = Scene(execution_id, world.lease(execution_id), key=key)
    if end is not None:
        end(world, scene)
    # What tries it again takes its key away, so it is not compared.
    return Scene(key=key, session=execution_id, bystanders=(execution_id,))


def _completes(world: World, scene: Scene) -> None:
    world.agent.complete(scene.lease, '"done"')


def _completes_at_length(world: World, scene: Scene) -> None:
    world.agent.complete(scene.lease, '"' + "x" * 5000 + '"')


def _fails(world: World, scene: Scene) -> None:
    world.agent.fail(scene.lease, "no")


def _waits(world: World, scene: Scene) -> None:
    propose(world, scene.lease, "ask")


def _is_given_back(world: World, scene: Scene) -> None:
    world.agent.release(scene.lease)


def _and_removed(end: Callable[[World, Scene], None]) -> Callable[[World, Scene], None]:
    def ends_long_ago(world: World, scene: Scene) -> None:
        end(world, scene)
        _outlive(world)

    return ends_long_ago


def _key_row(name: str, facets: str, end: Callable[[World, Scene], object] | None = None) -> Row:
    return Row(name, lambda w: _keyed(w, end), facets)


def _begun(world: World, scene: Scene) -> str:
    execution, claim = world.kernel.start(AGENT, idempotency_key=scene.key)
    return f"{execution.status} {'nothing' if claim is None else 'claimed'}"


def _retried(world: World, scene: Scene) -> str:
    execution, claim = world.kernel.retry(AGENT, scene.key, scene.session or str(uuid4()))
    return f"{execution.status} {'nothing' if claim is None else 'claimed'}"


_TOO_LARGE = rule("too-large", "!conflict", "9.8")

KEYS = Table(
    (
        Row("unused", lambda _: Scene(key=str(uuid4())), "unused"),
        _key_row("running", "is-running"),
        _key_row("given back", "is-running free", _is_given_back),
        _key_row("waiting", "is-blocked", _waits),
        _key_row("completed", "is-completed", _completes),
        _key_row("failed", "is-failed", _fails),
        _key_row("cancelled", "is-cancelled", lambda w, s: w.kernel.cancel(s.execution_id)),
        _key_row("completed long ago", "is-completed", _and_removed(_completes)),
        _key_row("completed at length", "too-large", _and_removed(_completes_at_length)),
        _key_row("failed long ago", "is-failed removed", _and_removed(_fails)),
    ),
    (
        Column(
            "create",
            (
                _TOO_LARGE,
                *(
                    rule(f"is-{status}", status, "9.1")
                    for status in ("running", "blocked", "completed", "failed", "cancelled")
                ),
                rule("unused", "running", "9.1"),
            ),
            "POST /v0/executions",
            lambda s: {"agent_id": AGENT, "idempotency_key": s.key, "input": "another"},
            port="create",
            direct=lambda w, s: w.kernel.create(AGENT, "another", idempotency_key=s.key),
        ),
        Column(
            "start",
            (
                _TOO_LARGE,
                rule("free", "running claimed", "5.2, 9.1"),
                *(
                    rule(f"is-{status}", f"{status} nothing", "9.1")
                    for status in ("running", "blocked", "completed", "failed", "cancelled")
                ),
                rule("unused", "running claimed", "9.1"),
            ),
            port="start",
            direct=_begun,
        ),
        Column(
            "retry",
            (
                _TOO_LARGE,
                rule("unused", "!not_found", "9.5"),
                rule("removed", "!conflict", "9.8"),
                rule("is-failed", "running claimed", "9.5"),
                rule("free", "running claimed", "5.2"),
                *(
                    rule(f"is-{status}", f"{status} nothing", "9.1")
                    for status in ("running", "blocked", "completed", "cancelled")
                ),
            ),
            port="retry",
            direct=_retried,
        ),
    ),
)

# -- resources (9.6)


Move = Callable[[World, LeaseKey], object]


def registers(world: World, lease: LeaseKey) -> None:
    world.agent.resources.register(lease, Registration("disk", "disk"))


def registers_to_capture(world: World, lease: LeaseKey) -> None:
    world.agent.resources.register(lease, Registration("disk", "disk", every_steps=2))


def binds(world: World, lease: LeaseKey) -> None:
    world.agent.resources.bind(lease, "disk", '"here"')


def captures(world: World, lease: LeaseKey) -> None:
    world.agent.resources.keep(lease, [Capture("disk", 0, "kept")], [])


def writes(world: World, lease: LeaseKey) -> None:
    proposal = Proposal("tool_call", "write", "null", resources=("disk",))
    assert world.agent.submit(lease, proposal).decision == "proceed"


def _resource_row(name: str, facets: str, *moves: Move) -> Row:
    def reach(world: World) -> Scene:
        scene = begin(world, "no step")
        for move in moves:
            move(world, scene.lease)
        return replace(scene, key="disk")

    return Row(name, reach, f"running held step-none {facets}")


def _register(name: str, driver: str, every_steps: int, *rules: Rule) -> Column:
    wanted = Registration("disk", driver, every_steps=every_steps)
    return Column(
        name,
        rules,
        "POST /v0/executions/{id}/resources",
        {"key": "disk", "driver_id": driver, "every_steps": every_steps},
        port="agent.resources.register",
        direct=lambda w, s: w.kernel.agent.resources.register(s.lease, wanted),
    )


def _bind(name: str, where: str, *rules: Rule) -> Column:
    return Column(
        name,
        (rule("none", "!not_found", "9.6"), *rules, rule("", "", "9.6", "resource.bound")),
        "POST /v0/executions/{id}/resources/{key}/binding",
        {"binding": where},
        port="agent.resources.bind",
        direct=lambda w, s: w.kernel.agent.resources.bind(s.lease, "disk", f'"{where}"'),
    )


_NEW = rule("none", "resource", "9.6", "resource.registered")
_CHANGES = Proposal("tool_call", "change", "null", resources=("disk",))

RESOURCES = Table(
    (
        _resource_row("none", "none"),
        _resource_row("registered", "", registers),
        _resource_row("to be captured", "captured", registers_to_capture),
        _resource_row("bound", "bound", registers, binds),
        _resource_row("covered", "captured", registers_to_capture, captures),
        _resource_row("being written", "stale", registers, writes),
    ),
    (
        _register("register", "disk", 0, _NEW, rule("", "resource", "9.6")),
        _register("register another", "tape", 0, _NEW, rule("", "!conflict", "9.6")),
        _register(
            "register to capture",
            "disk",
            1,
            _NEW,
            rule("captured", "resource", "9.6"),
            rule("", "resource", "9.6", "resource.registered"),
        ),
        _bind("bind", "here", rule("bound", "", "9.6")),
        _bind("bind elsewhere", "there", rule("bound", "!conflict", "9.6")),
        Column(
            "capture",
            (
                rule("none", "", "9.6", "resource.checkpoint_failed"),
                rule("stale", "", "9.6", "resource.checkpoint_failed"),
                rule("", "", "9.6", "resource.checkpointed"),
            ),
            "POST /v0/executions/{id}/resources/checkpoints",
            {"captures": [{"key": "disk", "generation": 0, "checkpoint_ref": "late"}]},
            port="agent.resources.keep",
            direct=lambda w, s: w.kernel.agent.resources.keep(
                s.lease, [Capture("disk", 0, "late")], []
            ),
        ),
        Column(
            "change",
            (
                rule("none", "!validation_error", "7.2 (10)"),
                rule("", "proceed", "7.2 (16)", "step.proposed step.allowed step.executing"),
            ),
            "POST /v0/executions/{id}/steps",
            {"kind": "tool_call", "target": "change", "args": None, "resources": ["disk"]},
            port="agent.submit",
            direct=lambda w, s: w.kernel.agent.submit(s.lease, _CHANGES),
        ),
    ),
)

# -- agents and their policies (2.3, 11)


def registered(world: World) -> Scene:
    agent_id = f"agent-{uuid4()}"
    world.kernel.register_agent(agent_id, secret=SECRET)
    return Scene(agent=agent_id)


def at_work(world: World) -> Scene:
    scene = registered(world)
    return replace(scene, execution_id=world.kernel.create(scene.agent).id)


def at_rest(world: World) -> Scene:
    scene = at_work(world)
    world.kernel.cancel(scene.execution_id)
    return scene


def forgotten(world: World) -> Scene:
    scene = registered(world)
    world.kernel.delete_agent(scene.agent)
    return scene


_UNKNOWN_AGENT = rule("unknown", "!not_found", "2.3")
_BROKEN = "rules: [{id: a, then: {decision: perhaps}}]"
_CASES = [{"target": "no-way"}]

AGENTS = Table(
    (
        Row("registered", registered, ""),
        Row("at work", at_work, "running step-none live"),
        Row("at rest", at_rest, "cancelled step-none"),
        Row("forgotten", forgotten, "unknown"),
        Row("unheard of", lambda _: Scene(agent=f"agent-{uuid4()}"), "unknown"),
    ),
    (
        Column(
            "register",
            (rule("", "agent", "2.3"),),
            "POST /v0/agents",
            lambda s: {"id": s.agent, "webhook_url": "", "secret": "another"},
            port="register_agent",
            direct=lambda w, s: w.kernel.register_agent(s.agent, secret="another"),
        ),
        Column(
            "delete",
            (_UNKNOWN_AGENT, rule("live", "!conflict", "2.3"), rule("", "", "2.3")),
            "DELETE /v0/agents/{id}",
            port="delete_agent",
            direct=lambda w, s: w.kernel.delete_agent(s.agent),
        ),
        Column(
            "publish",
            (rule("unknown", "!unauthorized", "1.5"), rule("", "", "2.2")),
            "PUT /v0/agents/{id}/metadata",
            {"description": "of use", "input_schema": None, "output_schema": None},
        ),
        Column(
            "set policy",
            (_UNKNOWN_AGENT, rule("", "", "2.3")),
            "POST /v0/policies/{agent}",
            {"bundle": "default_action: allow"},
            port="set_policy",
            direct=lambda w, s: w.kernel.set_policy(s.agent, "default_action: allow"),
        ),
        Column(
            "set broken policy",
            (rule("", "!validation_error", "2.3"),),
            "POST /v0/policies/{agent}",
            {"bundle": _BROKEN},
            port="set_policy",
            direct=lambda w, s: w.kernel.set_policy(s.agent, _BROKEN),
        ),
        Column(
            "test policy",
            (rule("", "report", "11.10"),),
            "POST /v0/policies/{agent}/test",
            {"bundle": "default_action: deny", "cases": _CASES},
            port="test_policy",
            direct=lambda w, s: w.kernel.test_policy(s.agent, "default_action: deny", cases=_CASES),
        ),
        Column(
            "create",
            (_UNKNOWN_AGENT, rule("", "running", "9.1")),
            "POST /v0/executions",
            lambda s: {"agent_id": s.agent},
            port="create",
            direct=lambda w, s: w.kernel.create(s.agent),
        ),
    ),
)
