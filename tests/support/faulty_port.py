"""A line to the kernel on which calls go wrong as a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from rebuno_sync.errors import NetworkError
from rebuno_sync.ports import AgentKernel, ResourceKernel
from rebuno_sync.types import (
    Execution,
    LeaseKey,
    Proposal,
    Recorded,
    Renewal,
    Spawn,
    Step,
    StepDecision,
    Wake,
)

__all__ = ["FaultyPort"]

T = TypeVar("T")


class _Fault:
    def __init__(self, happen: Callable[[], None], times: int, *, late: bool) -> None:
        self.happen = happen
        self.times = times
        self.late = late


class FaultyPort:
    """An ``AgentKernel`` that passes every call on, except as it was told to.

    ``calls`` names the calls that were made, in order. The faults of one method come in the order
    in which they were ordered.
    """

    def __init__(self, kernel: AgentKernel) -> None:
        self._kernel = kernel
        self._guard = threading.Lock()
        self._faults: dict[str, list[_Fault]] = {}
        self.calls: list[str] = []
        self.parks = kernel.parks
        """Whether it can wake whoever sleeps: without, sleeps are waited for under the lease."""

    def count(self, method: str) -> int:
        """How often a method was called."""
        return self.calls.count(method)

    def lose_request(self, method: str, times: int = 1) -> None:
        """The next calls never reach the kernel, and nobody can tell."""
        self._order(method, _Fault(_lost, times, late=False))

    def lose_reply(self, method: str, times: int = 1) -> None:
        """The kernel does what the next calls ask for; its answers are lost."""
        self._order(method, _Fault(_lost, times, late=True))

    def refuse(self, method: str, error: Exception, times: int = 1) -> None:
        """The kernel answers the next calls with an error and does nothing."""

        def refused() -> None:
            raise error

        self._order(method, _Fault(refused, times, late=False))

    def before(self, method: str, act: Callable[[], None]) -> None:
        """``act`` happens before the next call gets through."""
        self._order(method, _Fault(act, 1, late=False))

    def after(self, method: str, act: Callable[[], None]) -> None:
        """``act`` happens after the kernel has done the next call, before its answer arrives."""
        self._order(method, _Fault(act, 1, late=True))

    def _order(self, method: str, fault: _Fault) -> None:
        with self._guard:
            self._faults.setdefault(method, []).append(fault)

    def _through(self, method: str, call: Callable[[], T]) -> T:
        with self._guard:
            self.calls.append(method)
            waiting = self._faults.get(method)
            fault = waiting[0] if waiting else None
            if fault is not None and waiting is not None:
                fault.times -= 1
                if not fault.times:
                    del waiting[0]
        if fault is not None and not fault.late:
            fault.happen()
        answer = call()
        if fault is not None and fault.late:
            fault.happen()
        return answer

    # -- AgentKernel

    @property
    def wants_request_ids(self) -> bool:
        return self._kernel.wants_request_ids

    @property
    def renews_together(self) -> bool:
        return self._kernel.renews_together

    @property
    def takes_deltas(self) -> bool:
        return self._kernel.takes_deltas

    @property
    def takes_leases_back(self) -> bool:
        return self._kernel.takes_leases_back

    @property
    def keeps_tries(self) -> bool:
        return self._kernel.keeps_tries

    def suspend(self, lease: LeaseKey, wake: Wake | None = None) -> bool:
        return self._through("suspend", lambda: self._kernel.suspend(lease, wake))

    def spawn(self, lease: LeaseKey, spawn: Spawn) -> Execution:
        return self._through("spawn", lambda: self._kernel.spawn(lease, spawn))

    def get_step(self, execution_id: str, step_id: str) -> Step:
        return self._through("get_step", lambda: self._kernel.get_step(execution_id, step_id))

    def previous(self, execution_id: str) -> object:
        return self._through("previous", lambda: self._kernel.previous(execution_id))

    @property
    def resources(self) -> ResourceKernel:
        return self._kernel.resources

    def get_execution(self, execution_id: str) -> Execution:
        return self._through("get_execution", lambda: self._kernel.get_execution(execution_id))

    def list_steps(self, execution_id: str) -> list[Step]:
        return self._through("list_steps", lambda: self._kernel.list_steps(execution_id))

    def recorded(self, execution_id: str) -> list[Recorded]:
        return self._kernel.recorded(execution_id)

    def wall(self) -> int:
        return self._kernel.wall()

    def submit(self, lease: LeaseKey, proposal: Proposal) -> StepDecision:
        return self._through("submit", lambda: self._kernel.submit(lease, proposal))

    def complete_step(self, lease: LeaseKey, step_id: str, result: str) -> StepDecision:
        return self._through(
            "complete_step", lambda: self._kernel.complete_step(lease, step_id, result)
        )

    def fail_step(self, lease: LeaseKey, step_id: str, error: str) -> StepDecision:
        return self._through("fail_step", lambda: self._kernel.fail_step(lease, step_id, error))

    def delta(self, lease: LeaseKey, step_id: str, seq: int, data: str) -> None:
        self._through("delta", lambda: self._kernel.delta(lease, step_id, seq, data))

    def retrying(
        self, lease: LeaseKey, step_id: str, attempt: int, error: str, retry_in: float
    ) -> StepDecision:
        return self._through(
            "retrying",
            lambda: self._kernel.retrying(lease, step_id, attempt, error, retry_in),
        )

    def begin_try(self, lease: LeaseKey, step_id: str, attempt: int) -> StepDecision:
        return self._through("begin_try", lambda: self._kernel.begin_try(lease, step_id, attempt))

    def renew(self, leases: Sequence[LeaseKey]) -> list[Renewal]:
        try:
            return self._through("renew", lambda: self._kernel.renew(leases))
        except NetworkError:
            return [Renewal.UNKNOWN] * len(leases)

    def complete(self, lease: LeaseKey, output: str, state: str | None = None) -> None:
        return self._through("complete", lambda: self._kernel.complete(lease, output, state))

    def fail(self, lease: LeaseKey, reason: str) -> None:
        return self._through("fail", lambda: self._kernel.fail(lease, reason))

    def release(self, lease: LeaseKey, *, interrupted: bool = False, strike: bool = True) -> None:
        name = "release(interrupted)" if interrupted else "release"
        return self._through(
            name, lambda: self._kernel.release(lease, interrupted=interrupted, strike=strike)
        )


def _lost() -> None:
    raise NetworkError("the answer was lost on purpose")
