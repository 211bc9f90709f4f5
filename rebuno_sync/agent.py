"""One delivery in, one ``Outcome`` out: the only place where a signal becomes anything else."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .binding import Binding, InputInvalid
from .codec import PLAIN
from .context import ExecutionContext
from .errors import (
    APIError,
    Blocked,
    CodeChanged,
    Interrupted,
    LeaseSuperseded,
    NetworkError,
    NoActiveExecution,
    PolicyError,
    RateLimited,
    RebunoError,
    Signal,
    StorageError,
    Terminated,
    failure_reason,
)
from .heartbeat import RENEWER, Lease, Renewer
from .llm.unrecorded import follow_environment
from .logs import learn_what_is_recorded
from .outcomes import leaves_the_step
from .ports import AgentKernel
from .refusals import raise_for_refusal
from .replies import refuses_the_value
from .strict import mended
from .types import ExecutionStatus, Result

__all__ = ["Outcome", "OutcomeStatus", "dispatch"]

_log = logging.getLogger(__name__)

GRACE_SECONDS = 10.0
"""How long an attempt that ends waits for bodies that still run in other threads."""


class OutcomeStatus(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"
    BLOCKED = "blocked"
    TERMINATED = "terminated"
    LEASE_SUPERSEDED = "lease_superseded"
    INTERRUPTED = "interrupted"
    SKIPPED = "skipped"


_STATUS_OF_SIGNAL: dict[type[Signal], OutcomeStatus] = {
    Blocked: OutcomeStatus.BLOCKED,
    Terminated: OutcomeStatus.TERMINATED,
    LeaseSuperseded: OutcomeStatus.LEASE_SUPERSEDED,
    Interrupted: OutcomeStatus.INTERRUPTED,
}


@dataclass(frozen=True)
class Outcome:
    """What became of one delivery.

    ``output``: what the handler returned, when ``completed``. ``reason``: why it failed or
    stopped. ``error``: the exception that the handler raised, in the process where it did.
    """

    status: OutcomeStatus
    execution_id: str
    output: Any = None
    reason: str = ""
    error: BaseException | None = field(default=None, compare=False, repr=False)


def dispatch(
    handler: Binding,
    kernel: AgentKernel,
    lease: Lease,
    *,
    renewer: Renewer = RENEWER,
    secured: Callable[[], object] = lambda: None,
    stall_timeout: float | None = None,
    strict: bool = False,
    resumed_by_hand: bool = False,
) -> Outcome:
    """Run ``handler`` for the execution that ``lease`` covers, in this thread.

    ``secured`` is called before the handler, once the kernel has accepted a heartbeat: whatever
    else runs this execution here is stale then. ``stall_timeout``: seconds for which the handler
    may neither enter nor leave an effect; after that its lease is renewed no more.

    ``strict``: whether to stop before the first new step when recorded ones were not met again.
    ``resumed_by_hand``: whether nobody but the caller begins the next attempt, so that such a stop
    costs no strike.

    No signal leaves it. In the main thread a ``KeyboardInterrupt`` or ``SystemExit`` does, after
    the lease was given back and with the step that it struck left as it is; in another one it ends
    nothing, and fails the execution as any exception does.
    """
    execution_id = lease.key.execution_id
    follow_environment()
    try:
        renewer.keep(lease, kernel)
        execution = lease.insist(lambda: kernel.get_execution(execution_id), once_sent=False)
        if execution.status.terminal:
            return Outcome(OutcomeStatus.SKIPPED, execution_id, reason="it has already ended")
        if not renewer.secure(lease, kernel):
            return Outcome(OutcomeStatus.LEASE_SUPERSEDED, execution_id)
        secured()
        lease.moves.expect(stall_timeout)
        context = ExecutionContext(kernel, lease, execution, strict=strict)
        attempt = _Attempt(handler, kernel, lease, context, resumed_by_hand=resumed_by_hand)
        try:
            return attempt.run()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit) and not leaves_the_step(error):
                return attempt.end_by(error)  # Of a user's validator or serializer.
            attempt.abandon()
            raise
    except NoActiveExecution:
        raise  # In a forked child: the execution is its parent's.
    except RebunoError as error:
        _log.warning("execution %s could not be begun: %s", execution_id, error)
        _release(kernel, lease, interrupted=True)
        return Outcome(OutcomeStatus.INTERRUPTED, execution_id, reason=str(error))
    finally:
        renewer.drop(lease)


class _Attempt:
    def __init__(
        self,
        handler: Binding,
        kernel: AgentKernel,
        lease: Lease,
        context: ExecutionContext,
        *,
        resumed_by_hand: bool,
    ) -> None:
        self._handler = handler
        self._kernel = kernel
        self._lease = lease
        self._id = context.id
        self._context = context
        self._resumed_by_hand = resumed_by_hand

    def run(self) -> Outcome:
        try:
            args, kwargs = self._handler.bind(json.dumps(self._context.input))
        except InputInvalid as error:
            return self._fail(f"input_invalid: {error}", error)
        except Exception as error:  # a user's validator may raise anything
            return self._fail(_reason_of(error), error)
        learn_what_is_recorded(self._context)
        error_: BaseException | None = None
        value: object = None
        try:
            value = self._context.activate(lambda: self._handler.handler(*args, **kwargs))
        except Signal as signal:
            return self._unwind(self._context.pending or signal)
        except BaseException as error:
            group = error if isinstance(error, BaseExceptionGroup) else None
            if leaves_the_step(error) or (group and group.subgroup(_ends_the_process)):
                raise
            if group and group.subgroup(Signal):  # raised in asyncio tasks, say
                return self._unwind(self._context.pending or Interrupted(str(group)))
            error_ = error
        self._context.stay_home()
        if self._context.pending is not None:
            return self._unwind(self._context.pending)
        if error_ is not None:
            return self.end_by(error_)
        return self._complete(value)

    def end_by(self, error: BaseException) -> Outcome:
        """End as the handler's exception says; a refusal that it wraps counts as what it is."""
        try:
            raise_for_refusal(error)
        except Signal as signal:
            return self._unwind(signal)
        except (PolicyError, RateLimited) as refusal:
            error = refusal
        return self._fail(_reason_of(error), error)

    # -- ends that are reported

    def _complete(self, value: object) -> Outcome:
        state: str | None = None
        try:
            if isinstance(value, Result):
                state = None if value.state is None else PLAIN.encode(value.state, "state")
                value = value.output
            output = self._handler.output.encode(value, "output")
        except Exception as error:  # a user's serializer may raise anything
            return self._fail(f"output_invalid: {error}", error)
        if signal := self._await_bodies():
            return self._unwind(signal)
        self._context.activate(self._context.past.at_end)  # Within: what it logs is of it.
        try:
            recording = self._context.recording
            self._context.heard(lambda: recording.environments.at_completion(recording))
        except Signal as signal:
            return self._unwind(signal)
        try:
            self._lease.insist(lambda: self._kernel.complete(self._lease.key, output, state))
        except APIError as error:
            if error.code in _OVER:
                return self._settle_end(error, ExecutionStatus.COMPLETED)
            if not refuses_the_value(error):
                return self._unwind(Interrupted(str(error)))
            return self._fail(f"output_refused: {error.message}", error)
        except Interrupted as signal:  # of a port that holds outcomes back
            return self._unwind(signal)
        except (NetworkError, StorageError) as error:
            return self._unwind(Interrupted(str(error)))
        decoded = self._handler.output.decode(output)
        return Outcome(OutcomeStatus.COMPLETED, self._id, output=decoded)

    def _fail(self, reason: str, error: BaseException) -> Outcome:
        if signal := self._await_bodies():
            return self._unwind(signal)
        reason = mended(reason)
        try:
            self._lease.insist(lambda: self._kernel.fail(self._lease.key, reason))
        except APIError as refusal:
            if refusal.code in _OVER:
                return self._settle_end(refusal, ExecutionStatus.FAILED, error)
            return self._unwind(Interrupted(str(refusal)))
        except Interrupted as signal:
            return self._unwind(signal)
        except (NetworkError, StorageError) as lost:
            return self._unwind(Interrupted(str(lost)))
        if not self._resumed_by_hand:  # Else it is the cause of what its caller gets.
            self._context.activate(lambda: self._log_failure(reason, error))
        return Outcome(OutcomeStatus.FAILED, self._id, reason=reason, error=error)

    def _log_failure(self, reason: str, error: BaseException) -> None:
        told = f"execution {self._id} of {self._context.agent_id} failed: {reason}"
        stack = "".join(traceback.format_exception(error))
        if mended(stack) == stack:
            _log.error("%s", told, exc_info=error)
        else:  # Lone surrogates would break whoever writes the log.
            _log.error("%s\n%s", told, mended(stack))

    def _settle_end(
        self, refusal: APIError, wanted: ExecutionStatus, error: BaseException | None = None
    ) -> Outcome:
        """The end was refused: was it our own, whose answer had been lost, or somebody else's?"""
        if refusal.code == "lease_superseded":
            return self._unwind(LeaseSuperseded(refusal.message))
        try:
            ended = self._lease.insist(lambda: self._kernel.get_execution(self._id))
        except RebunoError as lost:
            return self._unwind(Interrupted(str(lost)))
        if ended.status is not wanted:
            return self._unwind(Terminated(refusal.message))
        if wanted is ExecutionStatus.COMPLETED:
            output = self._handler.output.decode(json.dumps(ended.output))
            return Outcome(OutcomeStatus.COMPLETED, self._id, output=output)
        return Outcome(OutcomeStatus.FAILED, self._id, reason=ended.failure_reason, error=error)

    def _await_bodies(self) -> Signal | None:
        """Effects that the handler left running in other threads may still record their
        outcomes. A signal that one of them raised meanwhile ends the attempt."""
        if not self._context.bodies.drain(GRACE_SECONDS):
            _log.warning(
                "execution %s ends while effects of it still run in other threads; their outcomes"
                " will not be recorded",
                self._id,
            )
        return self._context.pending

    # -- ends that are not

    def abandon(self) -> None:
        """The process is being interrupted: give the lease back and leave the steps as they are."""
        if self._context.elsewhere:
            return
        self._context.interrupt("the process was interrupted")
        self._give_back(interrupted=False)

    def _unwind(self, signal: Signal) -> Outcome:
        self._context.interrupt(str(signal))
        signal = self._explained(signal)
        of_its_kind = (it for cls, it in _STATUS_OF_SIGNAL.items() if isinstance(signal, cls))
        status = next(of_its_kind, OutcomeStatus.INTERRUPTED)
        changed = isinstance(signal, Interrupted) and signal.code_changed
        given_back = False
        if status is OutcomeStatus.INTERRUPTED:
            by_hand = changed and self._resumed_by_hand
            given_back = self._give_back(interrupted=not by_hand, strike=not changed)
        elif status is OutcomeStatus.BLOCKED:
            # What began before the block still records its outcome; the next attempt is to meet it.
            self._context.bodies.drain(GRACE_SECONDS)
        if not changed:
            _log.info("execution %s: this attempt ends as %s: %s", self._id, status, signal)
        elif not self._resumed_by_hand:  # Else it is an exception of who resumes it.
            told = _AGAIN if given_back else _AGAIN_WITH_STRIKE
            self._context.activate(lambda: _log.error("%s. %s", signal, told))
        error = CodeChanged(str(signal), self._id) if changed else None
        return Outcome(status, self._id, reason=str(signal), error=error)

    def _explained(self, signal: Signal) -> Signal:
        """What is known of the end of a lease, where the signal does not tell it."""
        if self._lease.moves.given_up and isinstance(signal, Terminated | LeaseSuperseded):
            return LeaseSuperseded(self._lease.reason)  # Whatever became of it elsewhere since.
        if self._lease.refused and isinstance(signal, LeaseSuperseded):
            try:
                status = self._kernel.get_execution(self._id).status
            except RebunoError:
                return signal
            if status.terminal:
                return Terminated(f"the execution is {status}")
        return signal

    def _give_back(self, *, interrupted: bool, strike: bool = True) -> bool:
        """Release the lease once no body runs under it; else it runs out by itself. Which it is."""
        if not self._context.bodies.drain(GRACE_SECONDS):
            _log.warning(
                "execution %s: effects still run, so its lease is left to run out", self._id
            )
            self._lease.left_to_run_out = True
            return False
        return _release(self._kernel, self._lease, interrupted=interrupted, strike=strike)


def _release(kernel: AgentKernel, lease: Lease, *, interrupted: bool, strike: bool = True) -> bool:
    try:
        kernel.release(lease.key, interrupted=interrupted, strike=strike)
    except RebunoError as error:
        _log.info("execution %s: lease not given back: %s", lease.key.execution_id, error)
        return False
    return kernel.takes_leases_back


def _ends_the_process(error: BaseException) -> bool:
    return leaves_the_step(error) and not isinstance(error, Signal)


def _reason_of(error: BaseException) -> str:
    try:
        return failure_reason(error)[:_LONGEST_REASON]
    except Exception:  # it cannot be printed, but it is what happened
        return f"agent_error: {type(error).__name__}: an exception that cannot be printed"


_AGAIN = "The kernel delivers it again after a back-off; such attempts cost no strike"
_AGAIN_WITH_STRIKE = (
    "Its lease was not given back, so the kernel delivers it again when that has run out, and such"
    " attempts count: too many of them fail it as dispatch_exhausted"
)

_LONGEST_REASON = 16_000
"""Characters. A reason is for people; what a body raised is kept whole with its step."""

_OVER = ("lease_superseded", "execution_terminal")
