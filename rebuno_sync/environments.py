"""The resources of one attempt: who uses them, and what is to be captured when (protocol.md 9.6).

Once there is a resource, the calls of tools and steps run one after another, from their submit to
their outcome: what a capture covers would be unknown otherwise.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from .errors import RebunoError
from .strict import mended
from .types import Capture, CaptureFailure, Registration, ResourceView, StepDecision, Touched

__all__ = ["Environments", "KeepsResources", "Managed"]

_log = logging.getLogger(__name__)


class KeepsResources(Protocol):
    """What the kernel is told of resources, under the lease."""

    def register(self, wanted: Registration) -> ResourceView: ...

    def keep(self, captures: Sequence[Capture], failures: Sequence[CaptureFailure]) -> None: ...


_LONGEST_ERROR = 1000


class Managed(NamedTuple):
    """A resource in use."""

    registration: Registration
    driver: Any
    handle: Any


class Environments:
    """The resources that one attempt has opened. Thread-safe."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.managed: dict[str, Managed] = {}
        self._due: dict[str, tuple[Touched, ...]] = {}
        self._mine = threading.local()

    def renew_locks(self) -> None:
        self.lock = threading.RLock()
        self._mine = threading.local()

    @contextmanager
    def alone(self, *, nested: bool) -> Iterator[None]:
        """In the block, the effect that the calling thread submits is the only one of its
        execution. What is called in another one's body belongs to that."""
        if nested or not self.managed:
            yield
            return
        self._mine.state = "waits"
        try:
            yield
        finally:
            if self._mine.state == "entered":
                self.lock.release()
            self._mine.state = ""

    def enter(self) -> None:
        """The calling thread submits, in its turn: identical calls wait for each other first."""
        if getattr(self._mine, "state", "") == "waits":
            self.lock.acquire()
            self._mine.state = "entered"

    # -- captures

    def begun(self, decision: StepDecision) -> None:
        """A step proceeds, and has touched what the decision says."""
        due = tuple(it for it in decision.resources if it.due and it.key in self.managed)
        if due:
            self._due[decision.step_id] = due

    def ended(self, step_id: str, kernel: KeepsResources) -> None:
        """The step's outcome is recorded: capture what is due. Failures to do so are told, and
        are none of the step."""
        due = self._due.pop(step_id, ())
        if due:
            self._capture([(it.key, it.generation) for it in due], kernel)

    def at_completion(self, kernel: KeepsResources) -> None:
        """The handler has returned: capture what is to be captured then and is not."""
        for key, managed in list(self.managed.items()):
            try:
                view = kernel.register(managed.registration)
            except RebunoError as error:
                _log.warning("resource %r is not captured at the end: %s", key, error)
                continue
            if view.on_completion and not view.covered:
                self._capture([(key, view.generation)], kernel)

    def capture(self, key: str, generation: int, kernel: KeepsResources) -> None:
        self._capture([(key, generation)], kernel)

    def _capture(self, wanted: Sequence[tuple[str, int]], kernel: KeepsResources) -> None:
        captures: list[Capture] = []
        failures: list[CaptureFailure] = []
        for key, generation in wanted:
            managed = self.managed[key]
            try:
                reference = managed.driver.checkpoint(managed.handle)
                captures.append(Capture(key, generation, _checked(reference)))
            except Exception as error:  # whatever a driver raises
                _log.warning("resource %r could not be captured", key, exc_info=True)
                failures.append(CaptureFailure(key, generation, _told(error)))
        try:
            kernel.keep(captures, failures)
        except RebunoError as error:
            _log.warning("the captures of %s were not kept: %s", [key for key, _ in wanted], error)


def _checked(reference: object) -> str:
    """A reference that a fork is given again as it is."""
    if not isinstance(reference, str) or not reference or mended(reference) != reference:
        raise TypeError(f"checkpoint() must return a text that is not empty, not {reference!r}")
    return reference


def _told(error: Exception) -> str:
    try:
        return mended(f"{type(error).__name__}: {error}"[:_LONGEST_ERROR])
    except Exception:  # it cannot be printed, but it is what happened
        return type(error).__name__
