"""Idempotency keys (protocol.md 9.1, 9.8)."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from .beginnings import propose
from .cells import Column, Row, Scene, Table, rule
from .roads import AGENT, World

__all__ = ["KEYS"]


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
        world.outlive()

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
