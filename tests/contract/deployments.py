"""A kernel and a road to it: what a scenario needs, and the deployments there are.

Scenarios know ``Deployment`` only. To run them against another kernel, or over another road, write
a class with these members and enter it in ``DEPLOYMENTS``; a kernel that runs elsewhere is named by
``REBUNO_KERNEL_URL``. There is one today: the embedded kernel, called directly.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel.lifecycle import BACKOFF_MAX_SECONDS
from rebuno_sync.kernel.store import Connection, tables
from rebuno_sync.ports import AgentKernel
from rebuno_sync.types import Event, Execution, ExecutionPage, LeaseKey, Step

from .scenarios import Generation

__all__ = ["AGENT", "DEPLOYMENTS", "MAX_ATTEMPTS", "Deployment", "Operator"]

AGENT = "agent"
"""An agent that every deployment has registered."""

MAX_ATTEMPTS = 3
"""Of every dispatch, in every deployment."""


class Operator(Protocol):
    """The operator's methods: the same names on ``Kernel`` and on a client."""

    def create(
        self, agent_id: str, input: object = None, *, idempotency_key: str | None = None
    ) -> Execution: ...

    def get(self, execution_id: str) -> Execution: ...

    def list(
        self, *, agent_id: str = "", status: str = "", limit: int = 50, cursor: str = ""
    ) -> ExecutionPage: ...

    def events(self, execution_id: str, after_seq: int = 0, limit: int = 100) -> list[Event]: ...

    def list_steps(self, execution_id: str, status: str = "") -> list[Step]: ...

    def get_step(self, execution_id: str, step_id: str) -> Step: ...

    def cancel(self, execution_id: str) -> None: ...

    def wait(self, execution_id: str, timeout: float | None = None) -> Execution: ...


class Deployment(Protocol):
    """One kernel, reachable for an operator and for an agent."""

    generation: Generation
    operator: Operator
    agent: AgentKernel

    def register(self, agent_id: str) -> None:
        """Make another agent known."""

    def lease(self, execution_id: str) -> LeaseKey | None:
        """The lease of the execution's next attempt, if there is one now: what a webhook brings."""

    def expire(self, lease: LeaseKey) -> None:
        """Let time pass until the lease has run out, if nothing has renewed it."""

    def pass_time(self, lease_share: float) -> None:
        """Let that share of a lease's length pass."""

    def pass_back_off(self) -> None:
        """Let time pass until whatever is retried is due."""

    def retire(self, lease: LeaseKey) -> None:
        """Have the kernel retire the lease's dispatch while the execution lives
        (protocol.md 5.5).
        """

    def close(self) -> None: ...


class EmbeddedDirect:
    """The embedded kernel in this process, without a wire, on a clock that is moved by hand."""

    generation = Generation.EMBEDDED

    def __init__(self, folder: Path) -> None:
        self._clock = ManualClock()
        self._kernel = Kernel(
            folder / "kernel.db", max_attempts=MAX_ATTEMPTS, lease_timeout=120.0, clock=self._clock
        )
        self.operator: Operator = self._kernel
        self.agent: AgentKernel = self._kernel.agent
        self.register(AGENT)

    def register(self, agent_id: str) -> None:
        self._kernel.register_agent(agent_id)

    def lease(self, execution_id: str) -> LeaseKey | None:
        claim = self._kernel.claim(execution_id)
        return None if claim is None else claim.lease

    def expire(self, lease: LeaseKey) -> None:
        self.pass_time(1.01)

    def pass_time(self, lease_share: float) -> None:
        self._clock.advance(120.0 * lease_share)

    def pass_back_off(self) -> None:
        self._clock.advance(BACKOFF_MAX_SECONDS * 1.25)

    def retire(self, lease: LeaseKey) -> None:
        # Blocking on an approval does this; without approvals only a hand on the file can.
        def work(db: Connection) -> None:
            (n,) = db.execute(
                "SELECT n FROM executions WHERE id = ?", (lease.execution_id,)
            ).fetchone()
            tables.retire_dispatches(db, n)

        self._kernel._store().write(work, durable=True)

    def close(self) -> None:
        self._kernel.close()


DEPLOYMENTS: dict[str, tuple[Generation, Callable[[Path], Deployment]]] = {
    "embedded-direct": (Generation.EMBEDDED, EmbeddedDirect),
}
