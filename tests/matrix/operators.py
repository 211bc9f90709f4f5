"""What operators ask about an execution, and what makes others of it (protocol.md 9)."""

from __future__ import annotations

from support.folded import Story

from rebuno_sync.types import LeaseKey, Spawn

from .cells import Column, Rule, Scene, rule
from .roads import AGENT, OTHER, World

__all__ = ["OPERATORS"]


_EXECUTION = "POST /v0/executions/{id}"


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
