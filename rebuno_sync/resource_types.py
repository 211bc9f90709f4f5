"""What travels about resources and forks (protocol.md 9.5, 9.6); ``types`` has them all."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import Field

from .wire import Wire

__all__ = [
    "Capture",
    "CaptureFailure",
    "ForkPoints",
    "Registration",
    "ResourceCheckpoint",
    "ResourceView",
    "Touched",
]


class Registration(NamedTuple):
    """A resource as an agent registers it (protocol.md 9.6)."""

    key: str
    driver_id: str
    configuration: str | None = None
    """JSON."""
    coverage_reuse: bool = False
    every_steps: int = 0
    """0: it is not captured."""
    on_completion: bool | None = None


class Touched(NamedTuple):
    """A resource that a step which starts may change."""

    key: str
    generation: int
    due: bool = False
    """Whether it is to be captured when the step has ended."""


class Capture(NamedTuple):
    """A captured state of a resource."""

    key: str
    generation: int
    checkpoint_ref: str


class CaptureFailure(NamedTuple):
    """Why a resource could not be captured."""

    key: str
    generation: int
    error: str


class ResourceCheckpoint(Wire):
    """A captured state of a resource: it covers the events from ``covered_seq`` up to, and without,
    ``invalidated_seq``."""

    key: str
    generation: int
    checkpoint_ref: str
    covered_seq: int
    invalidated_seq: int | None = None
    """``None`` while nothing has changed the resource since."""


class ResourceView(Wire):
    """A resource of an execution as it stands (protocol.md 3.8)."""

    key: str
    driver_id: str
    configuration: Any = None
    coverage_reuse: bool = False
    every_steps: int = 0
    on_completion: bool = False
    registered_seq: int = 0
    generation: int = 0
    count: int = 0
    """Of settled steps that changed it."""
    binding: Any = None
    """What its driver opens; ``None`` before it is bound."""
    checkpoint_ref: str | None = None
    """What it is to be created from."""
    covered: bool = False
    """Whether it is captured as it is."""


class ForkPoints(Wire):
    """Where an execution can be forked (protocol.md 9.5)."""

    latest_seq: int
    """The number of its last event: it can be forked at any event up to that."""
    resources: dict[str, int] = Field(default_factory=dict)
    """By resource, the event that registered it."""
    checkpoints: list[ResourceCheckpoint] = Field(default_factory=list)
