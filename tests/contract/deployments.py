"""A kernel and a road to it: what a scenario needs, and the deployments there are.

Scenarios know ``Deployment`` only. To run them against another kernel, or over another road, write
a class with these members and enter it in ``DEPLOYMENTS``. A kernel that runs elsewhere is one
more: ``REBUNO_KERNEL_URL`` names it, ``REBUNO_KERNEL_GENERATION`` (``g0``, ``g1`` or ``g2``) says
which scenarios it has, ``REBUNO_KERNEL_TOKEN`` is its operators' bearer token.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from support.receiver import Receiver

from rebuno_sync.client import Client
from rebuno_sync.clock import ManualClock
from rebuno_sync.delivery import HttpDeliver
from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel.http import KernelApp
from rebuno_sync.kernel.lifecycle import BACKOFF_MAX_SECONDS
from rebuno_sync.kernel.webhooks import EXTENSIONS
from rebuno_sync.kernel_client import KernelClient
from rebuno_sync.ports import AgentKernel
from rebuno_sync.serving import Server
from rebuno_sync.types import (
    Approval,
    Delta,
    Event,
    Execution,
    ExecutionPage,
    ForkPoints,
    LeaseKey,
    PolicyReport,
    Proposal,
    Step,
)

from .elsewhere import Elsewhere, named_by_environment
from .scenarios import Generation, bundle

__all__ = ["AGENT", "DEPLOYMENTS", "MAX_ATTEMPTS", "Deployment", "Operator"]

AGENT = "agent"
"""An agent that every deployment has registered."""

MAX_ATTEMPTS = 3
"""Of every dispatch, in every deployment."""


_TOKEN = "operators"
_SECRET = "shared"


class Stream(Protocol):
    """A live stream."""

    def __next__(self) -> Delta: ...

    def close(self) -> None: ...


class Operator(Protocol):
    """The operator's methods: the same names on ``Kernel`` and on a client."""

    def create(
        self,
        agent_id: str,
        input: object = None,
        *,
        idempotency_key: str | None = None,
        session: str | None = None,
        parent_execution_id: str | None = None,
        spawned_by: Mapping[str, str] | None = None,
        on_behalf_of: str | None = None,
    ) -> Execution: ...

    def get(self, execution_id: str) -> Execution: ...

    def list(
        self,
        *,
        agent_id: str = "",
        status: str = "",
        limit: int = 50,
        cursor: str = "",
        session: str = "",
    ) -> ExecutionPage: ...

    def events(
        self, execution_id: str, after_seq: int = 0, limit: int = 100
    ) -> builtins.list[Event]: ...

    def list_steps(self, execution_id: str, status: str = "") -> builtins.list[Step]: ...

    def get_step(self, execution_id: str, step_id: str) -> Step: ...

    def cancel(self, execution_id: str) -> None: ...

    def previous(self, execution_id: str) -> object: ...

    def stream(self, execution_id: str) -> Stream: ...

    def wait(self, execution_id: str, timeout: float | None = None) -> Execution: ...

    def fork(
        self, execution_id: str, at_seq: int, session: str = "", policy_bundle: str = ""
    ) -> Execution: ...

    def fork_points(self, execution_id: str) -> ForkPoints: ...

    def set_policy(self, agent_id: str, bundle: str) -> None: ...

    def test_policy(
        self,
        agent_id: str,
        bundle: str = "",
        *,
        cases: Sequence[Mapping[str, Any]] = (),
        execution_id: str = "",
        executions: Mapping[str, Any] | None = None,
    ) -> PolicyReport: ...

    def list_approvals(self, status: str = "pending") -> builtins.list[Approval]: ...

    def get_approval(self, approval_id: str) -> Approval: ...

    def grant_approval(
        self, approval_id: str, decided_by: str = "", rationale: str = ""
    ) -> None: ...

    def deny_approval(
        self, approval_id: str, decided_by: str = "", rationale: str = ""
    ) -> None: ...


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
        self._kernel.set_policy(AGENT, bundle("retire", "{decision: require_approval}"))
        self.agent.submit(lease, Proposal("tool_call", "retire", "null"))
        self._kernel.set_policy(AGENT, "")

    def close(self) -> None:
        self._kernel.close()


class EmbeddedHttp(EmbeddedDirect):
    """The same over HTTP: a client, signed requests, and webhooks that a receiver on the loopback
    interface takes."""

    def __init__(self, folder: Path) -> None:
        self._receiver = Receiver()
        self._deliver = HttpDeliver()
        self._given: int = 0
        self._leases: dict[str, LeaseKey] = {}
        super().__init__(folder)
        self._dispatcher = self._kernel.dispatcher()
        self._dispatcher.deliver_webhooks(self._deliver)
        self._server = Server(KernelApp(self._kernel, _TOKEN), "127.0.0.1", 0)
        client = KernelClient(self._server.url, AGENT, _SECRET, clock=self._clock)
        client.learn_extensions(", ".join(EXTENSIONS))
        self._client, self.agent = client, client
        self.operator = Client(self._server.url, _TOKEN)

    def register(self, agent_id: str) -> None:
        self._kernel.register_agent(agent_id, webhook_url=self._receiver.url, secret=_SECRET)

    def lease(self, execution_id: str) -> LeaseKey | None:
        while self._deliver_once():
            pass
        return self._leases.pop(execution_id, None)

    def _deliver_once(self) -> bool:
        self._dispatcher.dispatch_once()
        assert self._dispatcher.join(20.0), "a delivery is still under way"
        new = self._receiver.received[self._given :]
        self._given += len(new)
        # A notice (protocol.md 17) is no delivery.
        brought = [webhook.lease for webhook in new if "event" not in webhook.fields]
        self._leases |= {lease.execution_id: lease for lease in brought}
        return bool(brought)

    def close(self) -> None:
        self._client.close()
        self.operator.close()
        self._server.close()
        super().close()
        self._receiver.close()


DEPLOYMENTS: dict[str, tuple[Generation, Callable[[Path], Deployment]]] = {
    "embedded-direct": (Generation.EMBEDDED, EmbeddedDirect),
    "embedded-http": (Generation.EMBEDDED, EmbeddedHttp),
}

if (_named := named_by_environment()) is not None:
    DEPLOYMENTS["elsewhere"] = (_named, Elsewhere)
