"""What earlier attempts recorded of an execution, and how much of it this attempt has met."""

from __future__ import annotations

import threading
from collections import deque
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
        self._by_call: dict[Call, deque[Recorded]] = {}
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
                    if step.parent:
                        self._by_parent.setdefault(step.parent, []).append(step)
                self._unmet = {step.step_id: step for step in steps}

    @property
    def is_open(self) -> bool:
        return self._unmet is not None

    @property
    def left(self) -> bool:
        """Whether any recorded step is unmet, wherever it was called."""
        return bool(self._unmet)

    def meet(self, decision: StepDecision) -> bool:
        """This attempt has submitted a step and was answered; whether that began a new one.

        Without a lock, since every replayed step passes here: each step is taken by one thread.
        """
        step = self._unmet.pop(decision.step_id, None) if self._unmet else None
        proceeds = decision.decision == DecisionKind.PROCEED
        if step is None:
            if proceeds and not self.something_new:
                self.something_new = True
            return proceeds
        self._met[step.step_id] = step
        if self._by_parent and not proceeds:
            self._pass_over(step.step_id)
        return False

    def _pass_over(self, parent: str) -> None:
        """A step was answered for without its body: what was called in that is behind us."""
        passed = self._by_parent.pop(parent, [])
        while passed:
            enclosed = passed.pop()
            if self._unmet is not None:
                self._unmet.pop(enclosed.step_id, None)
            passed += self._by_parent.pop(enclosed.step_id, [])

    def is_new(self, call: Call, around: Collection[str]) -> bool:
        """Whether a call in the bodies of the steps ``around`` it meets nothing recorded."""
        with self._guard:
            unmet = self._unmet or {}
            if not self._by_call:
                self._by_call = _by_call(list(unmet.values()))
            recorded = self._by_call.get(call, deque())
            while recorded and recorded[0].step_id not in unmet:  # Most are met in their order.
                recorded.popleft()
            return not any(it.step_id in unmet and _is_called(it, around) for it in recorded)

    def unmet(self, around: Collection[str]) -> list[Recorded]:
        """What may still be met from the bodies of the steps ``around``, in the order of record."""
        return [step for step in self._ahead() if self._is_called_yet(step, around)]

    def anything_unmet(self, around: Collection[str]) -> bool:
        """Whether ``unmet`` would say anything."""
        return any(self._is_called_yet(step, around) for step in self._ahead())

    def _ahead(self) -> list[Recorded]:
        return list((self._unmet or {}).values())

    def _is_called_yet(self, step: Recorded, around: Collection[str]) -> bool:
        if step.parent is not None:
            return _is_called(step, around)
        return not any(_encloses(met, step) for met in list(self._met.values()))

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


def _by_call(steps: list[Recorded]) -> dict[Call, deque[Recorded]]:
    found: dict[Call, deque[Recorded]] = {}
    for step in steps:
        call = Call(step.kind, step.target, step.args_hash)
        found.setdefault(call, deque()).append(step)
    return found


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
