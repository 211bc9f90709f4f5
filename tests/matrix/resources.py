"""Resources of an execution that runs (protocol.md 9.6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rebuno_sync.types import Capture, LeaseKey, Proposal, Registration

from .beginnings import begin
from .cells import Column, Row, Rule, Scene, Table, rule
from .roads import World

__all__ = ["RESOURCES"]


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
