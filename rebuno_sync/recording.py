"""An execution's words with its kernel, and what it means when an answer is lost.

====================================================  ============================================
answer lost to a submit                               ``Interrupted``; it is never sent again
... when nothing was sent, or it has a request id     sent again while the lease holds
answer lost to an outcome                             sent again while the lease holds
a submit refused with an error                        the error, to the handler: nothing recorded
an outcome refused as a value, three times            recorded as a failure instead ("not storable")
... because the kernel is too busy (429 and such)     sent again while the lease holds
... for another reason (401, 403 and such)            ``Interrupted``: the effect may be done again
the lease is gone, or the execution has ended         ``LeaseSuperseded``, ``Terminated``
====================================================  ============================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol, TypeVar

from .clock import SYSTEM
from .environments import Environments
from .errors import (
    APIError,
    Interrupted,
    LeaseSuperseded,
    NetworkError,
    StorageError,
    Terminated,
)
from .failures import not_storable
from .heartbeat import Lease
from .ports import AgentKernel
from .replies import refuses_the_value
from .types import (
    Capture,
    CaptureFailure,
    DecisionKind,
    Execution,
    Proposal,
    Registration,
    ResourceView,
    Spawn,
    Step,
    StepDecision,
    Wake,
)

__all__ = ["Recording"]

T = TypeVar("T")

_OUTCOME_TRIES = 3


class InStep(Protocol):
    """Code that runs in a step's body, or, where the id is empty, in none."""

    @property
    def step_id(self) -> str: ...


class Recording:
    """Submits effects and records outcomes under one lease. Raises signals."""

    def __init__(self, kernel: AgentKernel, lease: Lease) -> None:
        self._kernel = kernel
        self._lease = lease
        self.environments = Environments()

    def alone(self, around: InStep | None) -> AbstractContextManager[None]:
        """In the block, no other effect of an execution with resources runs (``Environments``);
        ``around``: where it is called."""
        return self.environments.alone(nested=around is not None and bool(around.step_id))

    def submit(self, proposal: Proposal) -> StepDecision:
        """Ask for the decision on an effect; again only where that cannot propose it twice."""
        if self._kernel.wants_request_ids:
            proposal = proposal._replace(request_id=str(SYSTEM.new_id()))
        self.environments.enter()
        try:
            decision = self._lease.insist(
                lambda: self._kernel.submit(self._lease.key, proposal), once_sent=False
            )
            if decision.resources:
                self.environments.begun(decision)
            return decision
        except APIError as error:
            self._stop_if_over(error)
            raise
        except (NetworkError, StorageError) as error:
            raise Interrupted(f"submitting {proposal.target!r}: {error}") from error

    def outcome(self, step_id: str, result: str, failure: str | None) -> StepDecision:
        """Record the failure if there is one, else the result."""
        if failure is None:
            return self.result(step_id, result)
        return self.failure(step_id, failure)

    def result(self, step_id: str, result: str) -> StepDecision:
        """Record a result. ``replay`` carries what is recorded in its place."""
        decision = self._send(
            step_id,
            lambda: self._kernel.complete_step(self._lease.key, step_id, result),
            instead_of=result,
        )
        if result != "null":
            self._stop_if_unlike(decision)
        self.environments.ended(step_id, self)
        return decision

    def failure(self, step_id: str, failure: str) -> StepDecision:
        """Record a failure. ``replay`` carries what is recorded in its place."""
        decision = self._send(
            step_id,
            lambda: self._kernel.fail_step(self._lease.key, step_id, failure),
            instead_of=failure,
        )
        self._stop_if_unlike(decision)
        self.environments.ended(step_id, self)
        return decision

    @property
    def takes_deltas(self) -> bool:
        return self._kernel.takes_deltas

    def publish(self, step_id: str, seq: int, data: str) -> None:
        """Publish a piece of a stream, once; it may be lost."""
        self._kernel.delta(self._lease.key, step_id, seq, data)

    def retrying(self, step_id: str, attempt: int, failure: str, retry_in: float) -> None:
        """Record that a try failed and is followed by another, where the kernel keeps that."""
        self._tell(
            step_id,
            lambda: self._kernel.retrying(self._lease.key, step_id, attempt, failure, retry_in),
        )

    def begin_try(self, step_id: str, attempt: int) -> None:
        """Record that a further try begins, where the kernel keeps that."""
        self._tell(step_id, lambda: self._kernel.begin_try(self._lease.key, step_id, attempt))

    def _tell(self, step_id: str, tell: Callable[[], StepDecision]) -> None:
        def told() -> StepDecision:
            # Asked each time: a kernel may turn out not to have it.
            return tell() if self._kernel.keeps_tries else StepDecision(DecisionKind.RECORDED)

        try:
            decision = self._sent(step_id, told)
        except APIError as error:
            raise Interrupted(f"the kernel refused a try of {step_id}: {error}") from error
        if decision.decision == DecisionKind.REPLAY:
            self._lease.end()
            raise LeaseSuperseded("another attempt settled the step")

    def _send(
        self, step_id: str, send: Callable[[], StepDecision], *, instead_of: str
    ) -> StepDecision:
        """Send an outcome; one that the kernel will not have is recorded as a failure instead."""
        refusal: APIError | None = None
        for _ in range(_OUTCOME_TRIES):
            try:
                return self._sent(step_id, send)
            except APIError as error:
                if not refuses_the_value(error):
                    raise _refused(step_id, error) from error
                refusal = error
        failure = not_storable(instead_of, f"not storable by this kernel: {refusal}")
        try:
            decision = self._sent(
                step_id, lambda: self._kernel.fail_step(self._lease.key, step_id, failure)
            )
        except APIError as error:
            raise _refused(step_id, error) from error
        if decision.decision == DecisionKind.REPLAY:
            return decision
        return StepDecision(DecisionKind.REPLAY, step_id, error_json=failure)

    def _sent(self, step_id: str, send: Callable[[], StepDecision]) -> StepDecision:
        try:
            decision = self._lease.insist(send)
        except APIError as error:
            self._stop_if_over(error)
            raise
        except (NetworkError, StorageError) as error:
            raise Interrupted(f"recording an outcome: {error}") from error
        if decision.decision == DecisionKind.EXECUTION_TERMINAL:
            raise Terminated
        if decision.decision == DecisionKind.REPLAY:
            return replace(decision, step_id=step_id)
        return decision

    @property
    def parks(self) -> bool:
        """Whether the kernel can wake an execution that sleeps."""
        return self._kernel.parks

    def step(self, step_id: str) -> Step:
        """A step as it stands now."""
        key = self._lease.key
        return self._asked("a step", lambda: self._kernel.get_step(key.execution_id, step_id))

    def suspend(self, wake: Wake | None) -> bool:
        """Have the execution parked; whether it is, and the lease with that gone."""
        return self._asked("suspending", lambda: self._kernel.suspend(self._lease.key, wake))

    def spawn(self, spawn: Spawn) -> Execution:
        """Create a subagent. Asked again it is the same one: its key is the step's id."""
        return self._asked("a subagent", lambda: self._kernel.spawn(self._lease.key, spawn))

    def previous(self) -> object:
        """What the execution before left behind."""
        key = self._lease.key
        return self._asked("previous()", lambda: self._kernel.previous(key.execution_id))

    def register(self, wanted: Registration) -> ResourceView:
        """Register a resource, or find it as it stands."""
        key = self._lease.key
        return self._asked("a resource", lambda: self._kernel.resources.register(key, wanted))

    def bind(self, key: str, binding: str) -> None:
        """Say what a resource is bound to."""
        lease = self._lease.key
        self._asked("a binding", lambda: self._kernel.resources.bind(lease, key, binding))

    def keep(self, captures: Sequence[Capture], failures: Sequence[CaptureFailure]) -> None:
        """Say what was captured, and what could not be."""
        key = self._lease.key
        self._asked("captures", lambda: self._kernel.resources.keep(key, captures, failures))

    def _asked(self, what: str, ask: Callable[[], T]) -> T:
        """Ask what may be asked again."""
        try:
            return self._lease.insist(ask)
        except APIError as error:
            self._stop_if_over(error)
            raise
        except (NetworkError, StorageError) as error:
            raise Interrupted(f"{what}: {error}") from error

    def _stop_if_unlike(self, decision: StepDecision) -> None:
        """A step that has ended the other way, result for error, was settled by another attempt:
        the kernel then answers with nothing (protocol.md 8.1, 8.2)."""
        if decision.decision == DecisionKind.REPLAY and (
            decision.result_json is None and decision.error_json is None
        ):
            self._lease.end()
            raise LeaseSuperseded("another attempt settled the step in another way")

    def _stop_if_over(self, error: APIError) -> None:
        """Turn the kernel's word that this attempt is over into its signal."""
        if error.code == "lease_superseded":
            self._lease.end()
            raise LeaseSuperseded(error.message) from error
        if error.code == "execution_terminal":
            raise Terminated(error.message) from error
        return


def _refused(step_id: str, error: APIError) -> Interrupted:
    return Interrupted(f"the kernel refused the outcome of {step_id}: {error}")
