"""``OpenCall``: a model call that has not ended for good, and when the next one is its retry."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from .errors import PolicyError, RateLimited
from .frames import Frame
from .strict import compact
from .types import Proposal, StepDecision

__all__ = ["NOBODY", "OpenCall", "as_final", "unmarked"]

NOBODY = 0
"""No thread has that identifier."""

_FINAL = "final"
"""The member of a recorded failure after which the identical call was, or will be, another one: a
replay must meet that one, and not take the call for a retry."""


def as_final(failure: str) -> str:
    recorded = json.loads(failure)
    return compact({**recorded, _FINAL: True}, "error")


def unmarked(decision: StepDecision) -> tuple[StepDecision, bool]:
    """The failure as it was given, and whether it was final."""
    failure = decision.error
    if not isinstance(failure, dict) or failure.get(_FINAL) is not True:
        return decision, False
    given = {name: value for name, value in failure.items() if name != _FINAL}
    return replace(decision, error_json=compact(given, "error")), True


class OpenCall:
    """A model call that is open, or whose last answer a retry gets again."""

    def __init__(self, proposal: Proposal, frame: Frame[Any] | None, where: str) -> None:
        self.proposal = proposal
        self.frame = frame
        self.step_id = ""
        self.where = where
        self.thread = threading.get_ident()
        """``NOBODY``, when what that thread was carried for is over."""
        self.failure: str | None = None
        self.result: str | None = None
        """One of them, of a call that has ended: what is recorded by what comes next."""
        self.continues = False
        """Whether the next request belongs to it whatever the client says: a redirection."""
        self.followed = False
        """Whether the identical call came next and was no retry, as it will be on a replay."""
        self.answer: StepDecision | None = None
        self.refusal: PolicyError | RateLimited | None = None
        self.flight = ExitStack()
        self.close: Callable[[], None] | None = None

    @property
    def is_left_to_this_thread(self) -> bool:
        return self.thread in (threading.get_ident(), NOBODY)

    def is_like(self, other: OpenCall) -> bool:
        mine, its = self.proposal, other.proposal
        return (mine.target, mine.args) == (its.target, its.args) and self.frame is other.frame

    def is_asked_again(self, other: OpenCall, retry: bool | None) -> bool:
        if not self.is_like(other):
            return False
        if retry is None and self.where != other.where and not self.continues:
            return False
        if self.refusal is not None:
            return retry is True
        if self.answer is None and self.failure is None:  # in flight, or it has a result
            return False
        return retry is not False or self.continues
