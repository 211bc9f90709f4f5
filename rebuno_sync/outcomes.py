"""What came of a body, and how it reaches the handler: decoded from what is recorded."""

from __future__ import annotations

import threading
from typing import NamedTuple

from .codec import Codec
from .errors import Signal
from .failures import decode_failure
from .types import StepDecision

__all__ = ["Ran", "leaves_the_step", "live", "replayed"]


class Ran(NamedTuple):
    """What came of a body: a result's text, or a failure's, with the exception if it was one."""

    result: str = "null"
    failure: str | None = None
    error: BaseException | None = None
    settled: StepDecision | None = None
    """How a subagent that stands for the step has ended: the kernel has recorded that itself."""


def leaves_the_step(error: BaseException) -> bool:
    """Whether ``error`` ends the attempt or the process, and says nothing of the effect.

    An exit or interrupt that is raised in another thread than the main one ends neither: there it
    is an error like any other.
    """
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return threading.current_thread() is threading.main_thread()
    return isinstance(error, Signal)


def live(ran: Ran, target: str, step_id: str, codec: Codec) -> object:
    """Return or raise what was recorded just now."""
    if ran.failure is None:
        return codec.decode(ran.result)
    error = decode_failure(ran.failure, target, step_id)
    if error.__cause__ is not None and ran.error is not None:
        error.__cause__.__traceback__ = ran.error.__traceback__
    raise error


def replayed(decision: StepDecision, target: str, codec: Codec) -> object:
    """Return or raise what was recorded before."""
    if decision.error_json is not None and decision.error_json != "null":
        raise decode_failure(decision.error_json, target, decision.step_id)
    return codec.decode(decision.result_json or "null")
