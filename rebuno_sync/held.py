"""What a ``Backlog`` holds, and the requests that take it along."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .canonical import canonicalize
from .clock import SYSTEM
from .types import StepDecision

__all__ = ["Held", "Request", "size_of"]


class Held:
    """A result that the handler takes for recorded, and the kernel has still to take.

    ``patience``: seconds that it may wait for a request to travel with.
    """

    def __init__(self, step_id: str, result: str, patience: float = 0.0) -> None:
        self.step_id = step_id
        self.result = result
        self.due = SYSTEM.monotonic() + patience
        self.refusals = 0

    @property
    def operation(self) -> str:
        return f'{{"op":"complete_step","step_id":"{self.step_id}","result":{self.result}}}'

    def is_what(self, decision: StepDecision) -> bool:
        """Whether what a replay brings is what the handler has seen, to the letter: ``1`` is not
        ``true`` and not ``1.0``."""
        if decision.error_json is not None or decision.result_json is None:
            return False
        try:
            return canonicalize(self.result) == canonicalize(decision.result_json)
        except ValueError:  # Nested too deep, say: nothing that an agent of ours has sent.
            return False


class Request(NamedTuple):
    """A submit as it was sent: repeated under its id, it must say the very same."""

    id: str
    held: tuple[Held, ...] = ()


def size_of(held: Iterable[Held]) -> int:
    """Characters of the results."""
    return sum(len(one.result) for one in held)
