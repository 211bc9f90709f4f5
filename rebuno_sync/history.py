"""What earlier attempts recorded of an execution, and how much of it this attempt has met."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import NamedTuple

from .types import DecisionKind, Recorded, StepDecision

__all__ = ["Call", "History"]


class Call(NamedTuple):
    """What an effect is, apart from how often it was called before (protocol.md 6.3)."""

    kind: str
    target: str
    args_hash: str


class History:
    """The steps that were recorded before an attempt; each is met once, or never. Thread-safe.

    A step that was called in another step's body counts only while that body runs: one that is
    replayed does not call it again. It also counts the threads that run the handler's code, since
    what they have still to meet is not missing.
    """

    def __init__(self, load: Callable[[], list[Recorded]]) -> None:
        self._load = load
        self.renew_locks()
        self._unmet: dict[str, Recorded] | None = None
        self._by_call: dict[Call, dict[str, Recorded]] = {}
        self._by_parent: dict[str, list[Recorded]] = {}
        self._met: dict[str, Recorded] = {}
        self._moving = 0
        self._silences = 0
        self.something_new = False
        """Whether this attempt has begun a step that no earlier one had."""

    def renew_locks(self) -> None:
        self._opening = threading.Lock()
        self._guard = threading.Lock()
        self._changed = threading.Condition(self._guard)

    def open(self) -> None:
        """Read what is recorded, once, before this attempt adds to it."""
        if self._unmet is not None:
            return
        with self._opening:
            if self._unmet is None:
                steps = self._load()
                for step in steps:
                    call = Call(step.kind, step.target, step.args_hash)
                    self._by_call.setdefault(call, {})[step.step_id] = step
                    if step.parent:
                        self._by_parent.setdefault(step.parent, []).append(step)
                self._unmet = {step.step_id: step for step in steps}

    @property
    def left(self) -> bool:
        """Whether any recorded step is unmet, wherever it was called."""
        return bool(self._unmet)

    def meet(self, decision: StepDecision) -> None:
        """This attempt has submitted a step and was answered."""
        if not decision.step_id:
            return
        proceeds = decision.decision == DecisionKind.PROCEED
        with self._guard:
            step = self._take(decision.step_id)
            if step is None:
                self.something_new = self.something_new or proceeds
                return
            self._met[step.step_id] = step
            passed = [] if proceeds else self._by_parent.pop(step.step_id, [])
            while passed:  # It is answered for without its body.
                enclosed = passed.pop()
                self._take(enclosed.step_id)
                passed += self._by_parent.pop(enclosed.step_id, [])

    def _take(self, step_id: str) -> Recorded | None:
        step = self._unmet.pop(step_id, None) if self._unmet else None
        if step is not None:
            del self._by_call[Call(step.kind, step.target, step.args_hash)][step_id]
        return step

    def is_new(self, call: Call, around: Collection[str]) -> bool:
        """Whether a call in the bodies of the steps ``around`` it meets nothing recorded."""
        with self._guard:
            recorded = self._by_call.get(call, {}).values()
            return not any(_is_called(step, around) for step in recorded)

    def unmet(self, around: Collection[str]) -> list[Recorded]:
        """What may still be met from the bodies of the steps ``around``, in the order of record."""
        with self._guard:
            return [step for step in (self._unmet or {}).values() if self._is_ahead(step, around)]

    def anything_unmet(self, around: Collection[str]) -> bool:
        """Whether ``unmet`` would say anything."""
        with self._guard:
            return any(self._is_ahead(step, around) for step in (self._unmet or {}).values())

    def _is_ahead(self, step: Recorded, around: Collection[str]) -> bool:
        if step.parent is not None:
            return _is_called(step, around)
        return not any(_encloses(met, step) for met in self._met.values())

    def began(self, step_id: str) -> int | None:
        """When an earlier attempt began a step, on the kernel's clock."""
        step = self._met.get(step_id)
        return None if step is None else step.started_at

    # -- threads

    def move(self, threads: int) -> None:
        """So many threads more, or fewer, run the handler's code now."""
        with self._guard:
            self._moving += threads
            if self._moving <= 0:
                self._silences += 1
                self._changed.notify_all()

    def wait_for_others(self, seconds: float, *, counted: bool) -> bool:
        """Wait until every thread that runs the handler's code waits here, at most that long.

        ``counted``: whether the calling thread is one of them. Whether that is so.
        """
        seen = self._silences
        self.move(-int(counted))
        try:
            with self._guard:
                # A silence counts for all who were in it, also when the first of them has left.
                return self._changed.wait_for(lambda: self._silences > seen, seconds)
        finally:
            self.move(int(counted))


def _is_called(step: Recorded, around: Collection[str]) -> bool:
    return not step.parent or step.parent in around


def _encloses(outer: Recorded, step: Recorded) -> bool:
    """Whether a step may have been called in another's body, by the times alone."""
    if outer.started_at is None or step.started_at is None or step.started_at < outer.started_at:
        return False
    if outer.completed_at is None:
        return True
    # One request may bring both outcomes: then they have the same time.
    return step.completed_at is not None and step.completed_at <= outer.completed_at
