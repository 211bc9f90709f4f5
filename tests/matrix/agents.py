"""Agents and their policies (protocol.md 2.3, 11)."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

from .cells import Column, Row, Scene, Table, rule
from .roads import SECRET, World

__all__ = ["AGENTS"]


def registered(world: World) -> Scene:
    agent_id = f"agent-{uuid4()}"
    world.kernel.register_agent(agent_id, secret=SECRET)
    return Scene(agent=agent_id)


def at_work(world: World) -> Scene:
    scene = registered(world)
    return replace(scene, execution_id=world.kernel.create(scene.agent).id)


def overdue(world: World) -> Scene:
    scene = registered(world)
    execution_id = world.mortal.create(scene.agent).id
    world.clock.advance(1001)
    return replace(scene, execution_id=execution_id)


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
        Row("past its deadline", overdue, "cancelled", noticed="execution.cancelled"),
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
