"""A kernel and a road to it: what a scenario needs, and the deployments there are.

Scenarios know ``Deployment`` only. To run them against another kernel, or over another road, write
a class with these members and enter it in ``DEPLOYMENTS``. A kernel that runs elsewhere is one
more: ``REBUNO_KERNEL_URL`` names it, ``REBUNO_KERNEL_GENERATION`` (``g0``, ``g1`` or ``g2``) says
which scenarios it has, ``REBUNO_KERNEL_TOKEN`` is its operators' bearer token.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from support.receiver import Receiver

from rebuno_sync.client import Client
from rebuno_sync.clock import ManualClock
from rebuno_sync.delivery import HttpDeliver
from rebuno_sync.kernel import Kernel, suspension
from rebuno_sync.kernel.dispatcher import Dispatcher
from rebuno_sync.kernel.http import KernelApp
from rebuno_sync.kernel.lifecycle import BACKOFF_MAX_SECONDS
from rebuno_sync.kernel.moment import Moment
from rebuno_sync.kernel.store import Connection, tables
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
from .generations import FirstGeneration
from .scenarios import Generation, Road, bundle

__all__ = [
    "AGENT",
    "DEPLOYMENTS",
    "MAX_ATTEMPTS",
    "SECRET",
    "Changeable",
    "Deployment",
    "Operator",
    "Place",
    "Wired",
]

AGENT = "agent"
"""An agent that every deployment has registered."""

MAX_ATTEMPTS = 3
"""Of every dispatch, in every deployment."""


_TOKEN = "operators"

SECRET = "shared"
"""Of every agent."""


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

    def wait(self, execution_id: str, timeout: float | None = None) -> Execution: ...

    def stream(self, execution_id: str) -> AbstractContextManager[Iterator[Delta]]: ...

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

    def register(self, agent_id: str, webhook_url: str = "") -> None:
        """Make another agent known, with a receiver of its own if its address is given."""

    def lease(self, execution_id: str) -> LeaseKey | None:
        """The lease of the execution's next attempt, if there is one now: what a webhook brings."""

    def expire(self, lease: LeaseKey) -> None:
        """Let time pass until the lease has run out, if nothing has renewed it."""

    def pass_time(self, lease_share: float) -> None:
        """Let that share of a lease's length pass."""

    def pass_back_off(self) -> None:
        """Let time pass until whatever is retried is due."""

    def deliver(self) -> None:
        """Have every webhook sent that is due, and wait for the answers."""

    def retire(self, lease: LeaseKey) -> None:
        """Have the kernel retire the lease's dispatch while the execution lives
        (protocol.md 5.5).
        """

    def close(self) -> None: ...


class Wired(Deployment, Protocol):
    """One whose kernel is reached over HTTP, by whoever has credentials."""

    token: str
    """Of its operators."""

    def bearer(self, token: str) -> Client:
        """Somebody who sends that token, or none when it is empty."""

    def signer(self, agent_id: str, secret: str = SECRET, signature: str = "v1") -> KernelClient:
        """An agent, or somebody who signs like one."""

    def register_early(self, agent_id: str) -> None:
        """Make an agent known that signs the body alone."""


class Changeable(Deployment, Protocol):
    """One whose kernel can be tampered with."""

    delivery_seconds: float
    """How long an answer to a webhook is waited for at most."""

    limits: list[float]
    """How long the kernel wanted to wait for each."""

    def change_file(self, sql: str, *values: object) -> None:
        """Change the kernel's file behind its back."""

    def redeliver(self, execution_id: str) -> None:
        """Queue a dispatch for an execution that waits. Kernels before G2d do when one of several
        approvals is decided; the newest resume when nothing waits any more.
        """


class EmbeddedDirect:
    """The embedded kernel in this process, without a wire, on a clock that is moved by hand."""

    generation = Generation.EMBEDDED

    def __init__(self, folder: Path) -> None:
        self.delivery_seconds = float("inf")
        self.limits: list[float] = []
        self._post = HttpDeliver()
        self._clock = ManualClock()
        self._kernel = Kernel(
            folder / "kernel.db", max_attempts=MAX_ATTEMPTS, lease_timeout=120.0, clock=self._clock
        )
        self.operator: Operator = self._kernel
        self.agent: AgentKernel = self._kernel.agent
        self.register(AGENT)

    def register(self, agent_id: str, webhook_url: str = "") -> None:
        self._kernel.register_agent(agent_id, webhook_url=webhook_url, secret=SECRET)

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

    @cached_property
    def _dispatcher(self) -> Dispatcher:
        dispatcher = self._kernel.dispatcher()
        dispatcher.deliver_webhooks(self._send)
        return dispatcher

    def _send(
        self, url: str, headers: Sequence[tuple[str, str]], body: bytes, timeout: float
    ) -> int:
        self.limits.append(timeout)
        return self._post(url, headers, body, min(timeout, self.delivery_seconds))

    def deliver(self) -> None:
        self._dispatcher.dispatch_once()
        assert self._dispatcher.join(20.0), "a delivery is still under way"

    def change_file(self, sql: str, *values: object) -> None:
        self._kernel._store().write(lambda db: db.execute(sql, values), durable=False)

    def redeliver(self, execution_id: str) -> None:
        now = Moment.of(self._clock)

        def work(db: Connection) -> None:
            row = tables.execution(db, execution_id)
            assert row is not None
            suspension.queue_dispatch(db, row.n, now)

        self._kernel._store().write(work, durable=False)

    def close(self) -> None:
        self._kernel.close()


class EmbeddedHttp(EmbeddedDirect):
    """The same over HTTP: a client, signed requests, and webhooks that a receiver on the loopback
    interface takes."""

    token = _TOKEN

    def __init__(self, folder: Path) -> None:
        self._receiver = Receiver()
        self._given: int = 0
        self._leases: dict[str, LeaseKey] = {}
        self._clients: list[Client | KernelClient] = []
        super().__init__(folder)
        self._server = Server(KernelApp(self._kernel, _TOKEN), "127.0.0.1", 0)
        self.operator = self.bearer(_TOKEN)
        self.agent = self._speak()

    def _speak(self) -> AgentKernel:
        client = self.signer(AGENT)
        client.learn_extensions(", ".join(EXTENSIONS))
        return client

    def bearer(self, token: str) -> Client:
        client = Client(self._server.url, token)
        self._clients.append(client)
        return client

    def signer(self, agent_id: str, secret: str = SECRET, signature: str = "v1") -> KernelClient:
        client = KernelClient(
            self._server.url, agent_id, secret, signature=signature, clock=self._clock
        )
        self._clients.append(client)
        return client

    def register(self, agent_id: str, webhook_url: str = "") -> None:
        super().register(agent_id, webhook_url or self._receiver.url)

    def register_early(self, agent_id: str, webhook_url: str = "") -> None:
        self._kernel.register_agent(
            agent_id,
            webhook_url=webhook_url or self._receiver.url,
            secret=SECRET,
            signature="body",
        )

    def lease(self, execution_id: str) -> LeaseKey | None:
        while self._deliver_once():
            pass
        return self._leases.pop(execution_id, None)

    def _deliver_once(self) -> bool:
        self.deliver()
        new = self._receiver.received[self._given :]
        self._given += len(new)
        # A notice (protocol.md 17) is no delivery.
        brought = [webhook.lease for webhook in new if "event" not in webhook.fields]
        self._leases |= {lease.execution_id: lease for lease in brought}
        return bool(brought)

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self._server.close()
        super().close()
        self._receiver.close()


class EmbeddedForG1(EmbeddedHttp):
    """As an agent of G1 finds it: that signs the body alone, and knows no extension."""

    def register(self, agent_id: str, webhook_url: str = "") -> None:
        self.register_early(agent_id, webhook_url)

    def _speak(self) -> AgentKernel:
        return self.signer(AGENT, signature="body")


class EmbeddedForG0(EmbeddedForG1):
    """As an agent of G0 finds it: that knows no attempts either."""

    def _speak(self) -> AgentKernel:
        return cast(AgentKernel, FirstGeneration(self.signer(AGENT, signature="body")))


class Place(NamedTuple):
    """A deployment that there is. ``agents``: as of ``applies``."""

    generation: Generation
    road: Road
    deploy: Callable[[Path], Deployment]
    agents: Generation | None = None


DEPLOYMENTS = {
    "embedded-direct": Place(Generation.EMBEDDED, Road.IN_PROCESS, EmbeddedDirect),
    "embedded-http": Place(Generation.EMBEDDED, Road.HTTP, EmbeddedHttp),
    "embedded-http-g1": Place(Generation.EMBEDDED, Road.HTTP, EmbeddedForG1, Generation.G1),
    "embedded-http-g0": Place(Generation.EMBEDDED, Road.HTTP, EmbeddedForG0, Generation.G0),
}

if (_named := named_by_environment()) is not None:
    DEPLOYMENTS["elsewhere"] = Place(_named, Road.HTTP, Elsewhere)
