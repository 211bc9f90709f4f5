"""``resource``: an environment that steps change, found again by later attempts, captured and
restored in forks (protocol.md 13.10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from .codec import PLAIN
from .context import current
from .environments import Managed
from .types import Registration

__all__ = ["CheckpointPolicy", "Driver", "resource"]

H = TypeVar("H")
Made = TypeVar("Made", covariant=True)


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """When a resource is captured.

    ``every_steps``: after each so many steps that declare it, 1 or more. ``on_completion``: also
    when the handler has returned, if it was changed since.
    """

    every_steps: int = 1
    on_completion: bool = True

    def __post_init__(self) -> None:
        if self.every_steps < 1:
            raise ValueError(f"every_steps must be 1 or more, not {self.every_steps}")


class Driver(Protocol, Generic[Made]):
    """Makes an environment and finds it again; write a class of your own with these members.

    It may also have ``configuration`` (a JSON value that tells two environments of the driver
    apart), ``coverage_reuse`` (true: a step that does not declare the resource does not change it)
    and, where the resource is captured, ``checkpoint(handle) -> str``, which captures its state
    and returns a reference to it.
    """

    driver_id: str
    """Names the kind of environment."""

    def create(self, checkpoint_ref: str | None) -> tuple[Made, Any]:
        """Make a new one, from a captured state where ``checkpoint_ref`` is given: the handle that
        tools use, and a binding, a JSON value by which it is found again. Raises
        ``CheckpointUnavailable`` when that state is gone."""

    def open(self, binding: Any) -> Made:
        """Find one again, by its binding."""


_OF_A_DRIVER = ("driver_id", "create", "open")


def resource(key: str, driver: Driver[H], checkpoints: CheckpointPolicy | None = None) -> H:
    """The environment of the running execution that is called ``key``: made by ``driver`` in the
    first attempt, opened in later ones, restored in a fork; once for each attempt.

    ``key``: 1 to 128 letters, digits, dots, dashes and underscores. ``checkpoints``: when it is
    captured; never unless given. Tools name it in ``resources=[key]`` if they change it. From here
    on tools and steps of the execution run one after another.

    Raises ``ConflictError`` when the key was registered with another driver or configuration,
    ``ValidationError`` for a bad key, ``TypeError`` for what is no driver, ``ValueError`` when it
    is to be captured and the driver has no ``checkpoint``, ``NoActiveExecution`` outside an
    execution, and what the driver raises.
    """
    context = current("resource()")
    context.check()
    recording = context.recording
    environments = recording.environments
    with environments.lock:
        known = environments.managed.get(key)
        if known is not None:
            handle: H = known.handle
            return handle
        if missing := [name for name in _OF_A_DRIVER if not hasattr(driver, name)]:
            raise TypeError(
                f"the driver of resource {key!r} has no {', '.join(missing)}: {driver!r} (a driver"
                f" has {', '.join(_OF_A_DRIVER)})"
            )
        if checkpoints is not None and not hasattr(driver, "checkpoint"):
            raise ValueError(
                f"resource {key!r} is to be captured, but {driver!r} has no checkpoint"
            )
        configuration = getattr(driver, "configuration", None)
        wanted = Registration(
            key,
            driver.driver_id,
            None if configuration is None else PLAIN.encode(configuration, "configuration"),
            bool(getattr(driver, "coverage_reuse", False)),
            0 if checkpoints is None else checkpoints.every_steps,
            checkpoints is not None and checkpoints.on_completion,
        )
        view = context.heard(lambda: recording.register(wanted))
        if view.every_steps and not hasattr(driver, "checkpoint"):
            raise ValueError(f"resource {key!r} is captured, but {driver!r} has no checkpoint")
        if view.binding is not None:
            handle = driver.open(view.binding)
        else:
            handle, binding = driver.create(view.checkpoint_ref or None)
            text = PLAIN.encode(binding, "binding")
            context.heard(lambda: recording.bind(key, text))
        environments.managed[key] = Managed(wanted, driver, handle)
        if view.every_steps and not view.covered:
            generation = view.generation
            context.heard(lambda: environments.capture(key, generation, recording))
        return handle
