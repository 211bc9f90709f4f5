"""API keys (protocol.md 1.3, 2.3)."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

from .cells import Column, Row, Scene, Table, rule
from .roads import AGENT, World

__all__ = ["API_KEYS"]


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
