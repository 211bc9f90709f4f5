"""What effects gave that were called in a body which may be tried again."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from .errors import NoActiveExecution
from .types import DecisionKind, Proposal, StepDecision

__all__ = ["Results", "decided", "keep", "until_over"]

_LOOK_SECONDS = 0.2
"""How often a thread that waits for another's effect looks whether the attempt is over."""


class _Attempt(Protocol):
    id: str

    def check(self) -> None: ...


_Call = tuple[str, str, str]


class _Given:
    """One call in a body, and what it gave: nothing while it runs, or when it failed."""

    __slots__ = ("decision", "over")

    def __init__(self) -> None:
        self.decision: StepDecision | None = None
        self.over = threading.Event()

    def gives(self, step_id: str, result: str | None) -> None:
        self.decision = StepDecision(DecisionKind.REPLAY, step_id, result_json=result or "null")
        self.over.set()


class Results:
    """What effects gave in a body that may be tried again: the next try is given the same.

    A try that fails has not undone the effects in it. What succeeded there is met again, as it
    would be after a crash; what still runs (a body that timed out leaves it running) is waited
    for; what failed is a new call. Identical calls meet each other in their order. Thread-safe.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._earlier: dict[_Call, deque[_Given]] = {}
        self._here: dict[_Call, deque[_Given]] = {}
        self._running: dict[str, _Given] = {}
        self._over = False
        self._met_failure = False
        self._began_something = False

    @property
    def only_met(self) -> bool:
        """Whether a recorded failure was met, and nothing was begun."""
        return self._met_failure and not self._began_something

    def decided(
        self,
        proposal: Proposal,
        ask: Callable[[], StepDecision],
        attempt: _Attempt,
    ) -> StepDecision:
        """The decision on a call: what an earlier try got from it, or else the kernel's.

        Raises ``NoActiveExecution`` when this try is over, and the signal of an attempt that is. A
        call that proceeds must be ``ended``.
        """
        call = _call_of(proposal)
        while (earlier := self._take(call)) is not None:
            while not earlier.over.wait(_LOOK_SECONDS):
                attempt.check()
            if earlier.decision is not None:
                return earlier.decision
        given = self._begin(call)
        if given is None:
            raise NoActiveExecution(
                "an effect was called in a try that was over, of a body that is tried again"
                f" (execution {attempt.id}): a thread outlived it. Wait for it before returning."
            )
        try:
            decision = ask()
        except BaseException:
            given.over.set()
            raise
        if decision.decision == DecisionKind.PROCEED:
            self._began_something = True
            self._running[decision.step_id] = given
        elif decision.decision != DecisionKind.REPLAY:
            given.over.set()
        elif decision.error_json in (None, "null"):
            given.gives(decision.step_id, decision.result_json)
        else:
            self._met_failure = True
            given.over.set()
        return decision

    def _take(self, call: _Call) -> _Given | None:
        with self._guard:
            waiting = self._earlier.get(call)
            if not waiting:
                return None
            earlier = waiting.popleft()
            self._here.setdefault(call, deque()).append(earlier)
            return earlier

    def _begin(self, call: _Call) -> _Given | None:
        with self._guard:
            if self._over:
                return None
            given = _Given()
            self._here.setdefault(call, deque()).append(given)
            return given

    def keep(self, step_id: str, result: str | None) -> None:
        """A call that proceeded has succeeded."""
        self._running[step_id].gives(step_id, result)

    def ended(self, step_id: str) -> None:
        """A call that proceeded is over, whatever came of it."""
        self._running.pop(step_id).over.set()

    def of_next_try(self) -> Results:
        """Ends this try: nothing begins in it any more."""
        following = Results()
        with self._guard:
            self._over = True
            for call in self._here.keys() | self._earlier.keys():
                both = (*self._here.get(call, ()), *self._earlier.get(call, ()))
                following._earlier[call] = deque(
                    it for it in both if it.decision is not None or not it.over.is_set()
                )
        return following


def _call_of(proposal: Proposal) -> _Call:
    return proposal.kind, proposal.target, proposal.args


class _Body(Protocol):
    @property
    def results(self) -> Results | None:
        """What effects gave in it, if it may be tried again."""


def decided(
    body: _Body | None, proposal: Proposal, ask: Callable[[], StepDecision], attempt: _Attempt
) -> StepDecision:
    """The decision on a call in ``body``, which ``ask`` gets from the kernel."""
    if body is None or body.results is None:
        return ask()
    return body.results.decided(proposal, ask, attempt)


@contextmanager
def until_over(body: _Body | None, step_id: str) -> Iterator[None]:
    """Around an effect that proceeds in ``body``: at its end it is over there."""
    try:
        yield
    finally:
        if body is not None and body.results is not None:
            body.results.ended(step_id)


def keep(body: _Body | None, step_id: str, result: str | None, error: str | None) -> None:
    """An effect that proceeded in ``body`` has this outcome."""
    if body is not None and body.results is not None and error in (None, "null"):
        body.results.keep(step_id, result)
