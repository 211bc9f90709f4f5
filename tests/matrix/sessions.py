"""Sessions (protocol.md 9.2)."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

from rebuno_sync.types import Execution

from .beginnings import propose
from .cells import Column, Row, Scene, Table, rule
from .roads import AGENT, World

__all__ = ["SESSIONS"]


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
    world.outlive()
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
