"""Frames: which body an effect is called in, and what that body may still do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

from .errors import Blocked, NoActiveExecution, PolicyError, RateLimited, Signal
from .nested import Results
from .types import DecisionKind, Idempotency, Proposal, StepDecision

__all__ = [
    "Frame",
    "blocked",
    "forked",
    "late",
    "outside",
    "refused",
    "runs_all_the_same",
    "steps_around",
]


C = TypeVar("C")


class Frame(Generic[C]):
    """One running body (or the handler itself): what is called in it belongs to it.

    A signal that is raised in a frame marks it and those around it, so that a body that swallowed
    the signal cannot record a result that was computed without its effects.
    """

    __slots__ = (
        *("context", "outer", "step_id", "results"),
        *("signal", "refusal", "ended", "abandoned", "once", "settled"),
    )

    def __init__(
        self,
        context: C,
        outer: Frame[C] | None,
        step_id: str = "",
        results: Results | None = None,
        idempotency: str = "",
    ) -> None:
        self.context = context
        self.outer = outer
        self.step_id = step_id
        self.results = results
        self.once = idempotency == Idempotency.AT_MOST_ONCE
        """Whether its body must not run again."""
        self.settled: StepDecision | None = None
        """How a subagent, which stands for its step, has ended."""
        self.signal: Signal | None = None
        self.refusal: Exception | None = None
        self.ended = False
        self.abandoned = False

    @property
    def out_of_time(self) -> bool:
        """Whether the body, or one around it, has timed out."""
        frame: Frame[C] | None = self
        while frame is not None and frame.context is self.context:
            if frame.abandoned:
                return True
            frame = frame.outer
        return False

    def and_outer(self) -> Iterator[Frame[C]]:
        """This frame and those around it, innermost first."""
        frame: Frame[C] | None = self
        while frame is not None:
            yield frame
            frame = frame.outer

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


def refused(frame: Frame[C] | None, decision: StepDecision) -> Exception:
    """The error of an effect that was refused; noted in whose body that was, apart from refusals
    that the body itself raises."""
    refusal: PolicyError | RateLimited
    if decision.decision == DecisionKind.DENIED:
        refusal = PolicyError(decision.reason or "policy_denied", decision.rule_id)
    else:
        refusal = RateLimited(decision.reason or "rate_limit_exceeded")
    if frame is not None:
        frame.refusal = refusal
    return refusal


def blocked(decision: StepDecision) -> Blocked:
    """The signal of an effect that is not decided yet."""
    if decision.approval_id:
        return Blocked(f"the execution waits for a person: approval {decision.approval_id}")
    return Blocked(f"the execution waits: {decision.reason}" if decision.reason else "")


def runs_all_the_same(decision: StepDecision, proposal: Proposal, pending: Signal | None) -> bool:
    """Whether an effect that was just allowed runs though a sibling has blocked the execution.

    Its outcome still counts (protocol.md 5.4). If it did not run now, an ``at_most_once`` effect
    would count as begun (7.3), and never run at all.
    """
    once = proposal.idempotency == Idempotency.AT_MOST_ONCE
    allowed = decision.decision == DecisionKind.PROCEED
    return once and allowed and isinstance(pending, Blocked)


def outside(what: str, otherwise: str, *, others_live: bool) -> NoActiveExecution:
    """The error of an effect, called ``what``, that is called in no execution. ``otherwise``: what
    else its caller may do about it."""
    message = (
        f"{what} was called outside an execution: effects work only in a handler that"
        f" rebuno_sync.run() or an Agent runs.{otherwise}"
    )
    if others_live:
        message = (
            f"{what} was called in the thread {threading.current_thread().name!r}, which has lost"
            " the execution: a thread does not inherit one. Wrap what the thread runs in"
            " rebuno_sync.carry(fn), or use rebuno_sync.ThreadPoolExecutor."
        )
    return NoActiveExecution(message)


def late(execution_id: str) -> NoActiveExecution:
    """The error of an effect that is called when nothing may start any more."""
    return NoActiveExecution(
        "an effect was called after the body or handler that it belongs to had ended"
        f" (execution {execution_id}), or timed out: a thread outlived it. Wait for it before"
        " returning."
    )


def forked(execution_id: str) -> NoActiveExecution:
    """The error of an effect that is called in a child of the process that runs the execution."""
    return NoActiveExecution(
        f"this process was forked while execution {execution_id} ran in its parent; only the"
        " parent may perform its effects and record what came of them. Return values to the"
        " parent and end the child with os._exit(), or start an execution of the child's own with"
        " run()."
    )
