"""What the kernel keeps in memory of a lease that it claimed for a handler in this process.

Occurrence counters (protocol.md 6.3) belong to one attempt, and all of its submits come through
the process that claimed it, so they need no table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from ..types import LeaseKey, StepDecision
from .moment import Moment

__all__ = ["Attempt", "Attempts", "Enclosed"]

_Call = tuple[str, str, str]


class Enclosed(NamedTuple):
    """A step that an earlier attempt called in the body of another."""

    step_id: str
    call: _Call
    occurrence: int


class Attempt:
    """One claimed lease: which calls it has made, and what earlier attempts recorded for it."""

    def __init__(
        self, recorded: int, holder: threading.Thread | None, deadline_due: float | None
    ) -> None:
        self.on_over: Callable[[], None] | None = None
        """Has its handler find out that the lease is lost; called once."""
        self._holder = holder
        self._deadline_due = deadline_due
        self._guard = threading.Lock()
        self._free = threading.Condition(self._guard)
        self._next: dict[_Call, int] = {}
        self._passed: dict[_Call, set[int]] = {}
        self._busy: dict[_Call, int] = {}
        self._recorded = self._unmet = recorded
        self._settled: dict[str, StepDecision] | None = None
        self._enclosed: dict[str, list[Enclosed]] | None = None
        self._mark = -1

    def leave_to_run_out(self) -> None:
        """Bodies of it still run though its thread gave it up: only its lease decides."""
        self._holder = None

    def lives(self, asking: threading.Thread | None) -> bool:
        """Whether somebody in this process may be running it.

        A lease that was claimed for one thread is nobody's when that thread has ended, or asks for
        it again itself: it was interrupted (Ctrl-C) before it could give the lease back.
        """
        if self._holder is None:
            return True
        return self._holder is not asking and self._holder.is_alive()

    def tell_over(self) -> None:
        """The lease is lost, so its handler is told."""
        tell, self.on_over = self.on_over, None
        if tell is not None:
            tell()

    def overdue(self, now: Moment) -> bool:
        """Whether its execution is past its deadline."""
        return self._deadline_due is not None and self._deadline_due <= now.boottime

    # -- places

    def take_turn(self, call: _Call) -> int:
        """Wait for identical calls, and give the occurrence of this one.

        Which of them comes first decides who gets which recorded result, so none may overtake
        another between its place and its decision. Followed by ``end_turn``, whatever happens.
        """
        with self._guard:
            while call in self._busy:
                self._free.wait()
            self._busy[call] = threading.get_ident()
            place, passed = self._next.get(call, 0), self._passed.get(call, ())
            while place in passed:
                place += 1
            self._next[call] = place
            return place

    def end_turn(self, call: _Call, *, consumed: bool) -> None:
        """Let the next identical call go on; a place is used up when its decision was recorded.

        Does nothing in a thread that was interrupted before it had its turn.
        """
        with self._guard:
            if self._busy.get(call) != threading.get_ident():
                return
            del self._busy[call]
            if consumed:
                self._next[call] = self._next.get(call, 0) + 1
            self._free.notify_all()

    # -- what earlier attempts recorded

    @property
    def may_meet_recorded(self) -> bool:
        """Whether a submit can still meet a step of an earlier attempt."""
        return self._unmet > 0

    def meet(
        self, step_id: str, mark: int, load: Callable[[], dict[str, StepDecision]]
    ) -> StepDecision | None:
        """The decision on a settled step that was loaded ahead; ``load`` reads them all, once.

        ``mark``: where the file's changes stand. When something was written since the fence was
        last read, the lease may be gone, so what was loaded is not answered from.
        """
        with self._guard:
            if self._settled is None:
                self._settled, self._mark = load(), mark
            if mark != self._mark:
                return None
            found = self._settled.pop(step_id, None)
            self._unmet -= found is not None
            return found

    def pass_over(self, parent: str, load: Callable[[], dict[str, list[Enclosed]]]) -> None:
        """A step was answered without its body: the calls recorded in that body are behind us.

        Their places are used up, or an equal call after it would take one of theirs.
        """
        with self._guard:
            if self._enclosed is None:
                self._enclosed = load() if self._recorded else {}
            passed = self._enclosed.pop(parent, [])
            while passed:
                step = passed.pop()
                # Not those before it: another thread may have still to meet them.
                self._passed.setdefault(step.call, set()).add(step.occurrence)
                self._unmet -= 1
                passed += self._enclosed.pop(step.step_id, [])

    def met_recorded(self, mark: int) -> None:
        """A settled step was read under the fence, where the changes stood at ``mark``."""
        with self._guard:
            self._unmet -= 1
            self._mark = mark


class Attempts:
    """The attempts that this process claimed and that have not ended."""

    def __init__(self) -> None:
        self._attempts: dict[LeaseKey, Attempt] = {}

    def start(
        self,
        lease: LeaseKey,
        recorded: int,
        holder: threading.Thread | None,
        deadline_due: float | None,
    ) -> None:
        self._attempts[lease] = Attempt(recorded, holder, deadline_due)

    def get(self, lease: LeaseKey) -> Attempt | None:
        return self._attempts.get(lease)

    def end(self, lease: LeaseKey) -> None:
        self._attempts.pop(lease, None)

    def watched(self) -> list[tuple[LeaseKey, Attempt]]:
        """Those whose handlers have still to be told when they are over."""
        attempts = list(self._attempts.items())
        return [(lease, attempt) for lease, attempt in attempts if attempt.on_over]

    def __bool__(self) -> bool:
        return bool(self._attempts)
