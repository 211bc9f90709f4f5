"""The running execution: submit, decide, run, record. Only this module touches the ContextVar."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, copy_context
from typing import NoReturn, TypeVar

from .bodies import Bodies
from .codec import PLAIN, Codec, encode_plain_arguments
from .drift import is_patch
from .errors import Interrupted, LeaseSuperseded, RebunoError, Signal, Terminated
from .failures import encode_failure, not_storable
from .frames import Frame, blocked, forked, late, outside, refused, runs_all_the_same, steps_around
from .heartbeat import Lease
from .model_calls import ModelCallSeams
from .nested import Results, decided, keep, until_over
from .outcomes import Ran, leaves_the_step, live, replayed
from .past import Past
from .ports import AgentKernel
from .recording import Recording
from .retrying import ONCE, Bounds
from .timed import Limit, TimedOut, limit_of, within
from .tries import settled
from .turns import in_turn
from .types import (
    DecisionKind,
    Execution,
    ExecutionStatus,
    Idempotency,
    Proposal,
    StepDecision,
    StepKind,
    check_idempotency,
)

__all__ = ["ExecutionContext", "ancestors", "current", "execution", "here"]

R = TypeVar("R")

_RAN_OUT = "the lease ran out before the body started"

_frame: ContextVar[Frame[ExecutionContext] | None] = ContextVar("rebuno_sync_frame", default=None)
_live: set[ExecutionContext] = set()


class ExecutionContext(ModelCallSeams):
    """One attempt of an execution, as its handler sees it. Thread-safe."""

    def __init__(
        self, kernel: AgentKernel, lease: Lease, execution: Execution, *, strict: bool = False
    ) -> None:
        super().__init__()
        self.id = execution.id
        self.agent_id = execution.agent_id
        self.input = execution.input
        self.dispatch_id = lease.key.dispatch_id
        self.dispatch_attempt = lease.key.attempt
        self._kernel = kernel
        self._lease = lease
        self.recording = Recording(kernel, lease)
        self._execution = execution
        self._guard = threading.Lock()
        self.bodies = Bodies()
        self.pending: Signal | None = None  # What ended it, whatever the handler did with that.
        self._stopped = threading.Event()
        self._waits = False
        self._elsewhere = False
        self.past = Past(kernel, lease, strict=strict)

    # -- what a handler may ask

    @property
    def status(self) -> ExecutionStatus:
        """The execution's status when this attempt began."""
        return self._execution.status

    @property
    def cancelled(self) -> bool:
        """Whether this attempt is over: cancelled, superseded, or stopped by a signal."""
        return self.pending is not None or self._lease.over

    @property
    def replaying(self) -> bool:
        """Whether recorded steps of this execution are still unmet and nothing new has begun."""
        return self.past.replaying(self.around)

    @property
    def around(self) -> list[str]:
        """The ids of the steps in whose bodies the calling thread is, innermost first."""
        return steps_around(_frame.get(), self)

    @property
    def knows_recorded(self) -> bool:
        """Whether ``replaying`` can be told without asking the kernel."""
        return self.past.known

    def check(self) -> None:
        """Raise the pending signal if this attempt is over."""
        self._lease.moves.made()
        if self.pending is not None:
            self._stop(self.pending.again())
        if self._lease.over:
            self._stop(LeaseSuperseded(self._lease.reason))

    def wait(self, seconds: float) -> None:
        """Sleep that many seconds; raises the pending signal as soon as this attempt is over."""
        self.check()
        with self.resting():
            self._stopped.wait(seconds)
        self.check()

    @contextmanager
    def dozing(self) -> Iterator[None]:
        """For an effect that does nothing but wait: its host need not wait for its end."""
        with self._lease.moves.dozing(), self.resting():
            yield

    def resting(self) -> AbstractContextManager[None]:
        """Who waits in it does not hang, and is woken when this attempt ends."""
        if not self._waits:
            self._waits = True
            self._lease.on_end(self._tell_over)
        return self._lease.moves.resting()

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback``, from another thread, when the lease of this attempt ends; what is
        returned takes that back."""
        return self._lease.on_end(callback)

    def invoke_tool(
        self,
        target: str,
        args: dict[str, object],
        run: Callable[[], object] | None,
        *,
        idempotency: str = Idempotency.SAFE_TO_RETRY,
        kind: str = StepKind.TOOL_CALL,
    ) -> object:
        """Perform an effect of your own making (protocol.md 13.8).

        ``args``: JSON, the effect's identity. ``run``: its body, called when the kernel lets it
        proceed; its result must be JSON. Raises ``TypeError`` naming the path for what is not
        JSON, before anything is submitted.
        """
        check_idempotency(idempotency)
        text = encode_plain_arguments(args)
        proposal = Proposal(kind, target, text, idempotency, canonical=True)
        return self.perform(proposal, run or (lambda: None), PLAIN)

    # -- one effect

    def perform(
        self,
        proposal: Proposal,
        run: Callable[[], object],
        codec: Codec,
        bounds: Bounds = ONCE,
    ) -> object:
        """Submit the effect, and run or replay it as the kernel decides, within its bounds.

        What is returned or raised is decoded from what is recorded, live as on a replay. Raises
        ``ToolError`` when the body failed, ``PolicyError`` or ``RateLimited`` when it was refused,
        or a signal.
        """
        outer = self._current_frame()
        # Counted before it is submitted: whoever ends the attempt waits for it from here on.
        with self.recording.alone(outer), self.bodies.one_more(), self._lease.moves.busy():
            met = self._propose(proposal, outer)
            if met.decision != DecisionKind.PROCEED:
                return replayed(met, proposal.target, codec)
            with until_over(outer, met.step_id):
                return self._run(met, proposal, run, codec, outer, bounds)

    def _submit(self, proposal: Proposal, outer: Frame[ExecutionContext] | None) -> StepDecision:
        def propose() -> StepDecision:
            self.past.expect(proposal, outer)
            return self.recording.submit(proposal)

        def ask() -> StepDecision:
            decision = self.heard(propose)
            self.past.meet(decision, proposal, outer)
            return decision

        return in_turn(lambda: decided(outer, proposal, ask, self), self.past.move)

    def _propose(self, proposal: Proposal, outer: Frame[ExecutionContext] | None) -> StepDecision:
        """Submit an effect; the decision is ``proceed`` or ``replay``, a refusal is raised."""
        if outer is not None and outer.step_id and not is_patch(proposal):
            proposal = proposal._replace(parent=outer.step_id)
        self.check()
        self._close_ended_calls()
        decision = self._submit(proposal, outer)
        match decision.decision:
            case DecisionKind.PROCEED | DecisionKind.REPLAY:
                if not runs_all_the_same(decision, proposal, self.pending):
                    self.check()
                return decision
            case DecisionKind.DENIED | DecisionKind.RATE_LIMITED:
                raise refused(outer, decision)
            case DecisionKind.BLOCKED | DecisionKind.EXECUTION_BLOCKED:
                self._stop(blocked(decision))
            case DecisionKind.EXECUTION_TERMINAL:
                self._stop(Terminated())
        raise RebunoError(f"unexpected step decision: {decision!r} for {proposal.target!r}")

    def _run(
        self,
        met: StepDecision,
        proposal: Proposal,
        run: Callable[[], object],
        codec: Codec,
        outer: Frame[ExecutionContext] | None,
        bounds: Bounds,
    ) -> object:
        step_id, target = met.step_id, proposal.target

        def once(results: Results | None = None, number: int = 1) -> Ran:
            if outer is not None and outer.out_of_time:  # Since the submit, or in back-off.
                raise late(self.id)
            if not self._lease.holds():
                self._stop(LeaseSuperseded(self._lease.reason or _RAN_OUT))
            frame = Frame(self, outer, step_id, results, proposal.idempotency)
            ran = self._call(run, codec, frame, limit_of(bounds, self.id, proposal, number))
            self.stay_home()
            return ran if frame.settled is None else Ran(settled=frame.settled)

        policy, kept = bounds.retries, self.recording
        if policy.attempts == 1 and not met.attempt:
            ran = once()
        else:
            ran = self.heard(lambda: settled(met, policy, kept, self.wait, once))
        decision = ran.settled or self.heard(lambda: kept.outcome(step_id, ran.result, ran.failure))
        self.check()
        if decision.decision == DecisionKind.REPLAY:
            keep(outer, step_id, decision.result_json, decision.error_json)
            return replayed(decision, target, codec)
        keep(outer, step_id, ran.result, ran.failure)
        return live(ran, target, step_id, codec)

    def _call(
        self,
        run: Callable[[], object],
        codec: Codec,
        frame: Frame[ExecutionContext],
        limit: Limit | None,
    ) -> Ran:
        """Run a body in its frame and encode what came of it."""
        there = self._closing_calls(frame)(run)  # In a thread of its own, if it gets one.
        token = _frame.set(frame)
        try:
            with self._closing_calls(frame):
                value = run() if limit is None else within(limit, there, self.bodies.one_more)
        except BaseException as error:
            self._stop_if_marked(frame)
            if error is frame.refusal or leaves_the_step(error):
                # A refusal of a nested effect: this step stays open and meets it on a replay.
                raise
            frame.abandoned = isinstance(error, TimedOut)
            record = error.record if isinstance(error, TimedOut) else encode_failure(error)
            return Ran(failure=record, error=error)
        finally:
            _frame.reset(token)
            frame.ended = True
        self._stop_if_marked(frame)
        try:
            return Ran(result=codec.encode(value, "result"))
        except Exception as problem:
            return Ran(failure=not_storable(value, problem))

    # -- signals

    def heard(self, ask: Callable[[], R]) -> R:
        """What the kernel answers; a signal ends this attempt."""
        try:
            return ask()
        except Signal as signal:
            self._remember(signal)
            raise

    def _remember(self, signal: Signal) -> None:
        """This attempt is over, whatever the code around does with the signal."""
        with self._guard:
            self.pending = self.pending or signal
        self._tell_over()
        frame = _frame.get()
        if frame is not None and frame.context is self:
            frame.mark(signal)

    def _stop(self, signal: Signal) -> NoReturn:
        self._remember(signal)
        raise signal

    def _stop_if_marked(self, frame: Frame[ExecutionContext]) -> None:
        if frame.signal is not None:
            self._stop(frame.signal.again())

    def interrupt(self, reason: str) -> None:
        """No further effect may start: the host gives this attempt up."""
        with self._guard:
            self.pending = self.pending or Interrupted(reason)
        self._tell_over()

    def _tell_over(self) -> None:
        self._stopped.set()
        self.bodies.nudge()

    # -- bodies and threads

    @property
    def elsewhere(self) -> bool:
        """Whether this process was forked from the one that runs the execution."""
        return self._elsewhere

    def stay_home(self) -> None:
        """Raise ``NoActiveExecution`` in a forked child: the execution is its parent's."""
        if self._elsewhere:
            raise forked(self.id)

    def _current_frame(self) -> Frame[ExecutionContext] | None:
        self.stay_home()
        frame = _frame.get()
        if frame is None or frame.context is not self:
            return None
        if frame.ended or frame.out_of_time:
            raise late(self.id)
        return frame

    @property
    def body(self) -> Frame[ExecutionContext] | None:
        """The frame of the step in whose body the calling thread is."""
        return self._current_frame() if self.around else None

    def activate(self, fn: Callable[[], R]) -> R:
        """Call ``fn`` with this as the current execution of the calling thread.

        It gets a copy of the thread's context, so whatever an interrupt leaves undone in it, the
        thread is in no execution afterwards that it was not in before.
        """
        return copy_context().run(self._call_active, fn)

    def _call_active(self, fn: Callable[[], R]) -> R:
        frame = Frame(self, _frame.get())
        _frame.set(frame)
        _live.add(self)
        self.past.move(1)
        try:
            with self._closing_calls(frame):
                return fn()
        finally:
            self.past.move(-1)
            frame.ended = True
            _live.discard(self)


def execution() -> ExecutionContext:
    """The execution that the calling thread runs.

    Raises ``NoActiveExecution`` outside one, and in a thread that lost it (see ``carry``).
    """
    return current("execution()")


def current(what: str, otherwise: str = "") -> ExecutionContext:
    """The current execution, for the effect that is called ``what`` in the error (`outside`)."""
    frame = _frame.get()
    if frame is not None:
        return frame.context
    raise outside(what, otherwise, others_live=bool(_live))


def here() -> tuple[ExecutionContext, str] | None:
    """The calling thread's execution and the step whose body it runs, if any; raises nothing."""
    frame = _frame.get()
    return None if frame is None else (frame.context, frame.step_id)


def ancestors() -> list[ExecutionContext]:
    """The executions that the calling thread is in, innermost first."""
    frame = _frame.get()
    return [] if frame is None else list(dict.fromkeys(it.context for it in frame.and_outer()))


def _mark_inherited() -> None:
    for context in list(_live):
        context._elsewhere = True
        context.past.renew_locks()
    _live.clear()


os.register_at_fork(after_in_child=_mark_inherited)
