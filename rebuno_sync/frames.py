"""Frames: which body an effect is called in, and what that body may still do."""

from __future__ import annotations

from types import TracebackType
from typing import Generic, NamedTuple, TypeVar

from .errors import PolicyError, RateLimited, Signal

__all__ = ["LEAVES_THE_STEP", "Frame", "Ran", "refused", "steps_around"]


C = TypeVar("C")


class Frame(Generic[C]):
    """One running body (or the handler itself): what is called in it belongs to it.

    A signal that is raised in a frame marks it and those around it, so that a body that swallowed
    the signal cannot record a result that was computed without its effects.
    """

    __slots__ = ("context", "ended", "outer", "refusal", "signal", "step_id")

    def __init__(self, context: C, outer: Frame[C] | None, step_id: str = "") -> None:
        self.context = context
        self.outer = outer
        self.step_id = step_id
        self.signal: Signal | None = None
        self.refusal: Exception | None = None
        self.ended = False

    def mark(self, signal: Signal) -> None:
        self.signal = self.signal or signal
        if self.outer is not None and self.outer.context is self.context:
            self.outer.mark(signal)


def steps_around(frame: Frame[C] | None, context: C) -> list[str]:
    """The ids of the steps in whose bodies ``frame`` is, innermost first."""
    found = []
    while frame is not None and frame.context is context:
        if frame.step_id:
            found.append(frame.step_id)
        frame = frame.outer
    return found


def refused(frame: Frame[C] | None, refusal: PolicyError | RateLimited) -> Exception:
    """Note in whose body an effect was refused, apart from refusals that the body itself raises."""
    if frame is not None:
        frame.refusal = refusal
    return refusal


LEAVES_THE_STEP = (Signal, KeyboardInterrupt, SystemExit)
"""What ends an attempt or the process, and says nothing of the effect."""


class Ran(NamedTuple):
    """What came of a body: a result's text, or a failure's."""

    result: str = "null"
    failure: str | None = None
    traceback: TracebackType | None = None
