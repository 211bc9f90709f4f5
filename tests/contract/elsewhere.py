"""A kernel that runs elsewhere, on the same machine: it is reached over HTTP, and time is waited
for.

It has to be started for the suite: with leases of a few seconds (its default for agents that name
none, which ``REBUNO_KERNEL_LEASE_SECONDS`` tells of a kernel whose webhooks do not), three attempts
for each dispatch, and no other agent called ``agent``.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from support.receiver import Receiver

from rebuno_sync.client import Client
from rebuno_sync.kernel.lifecycle import BACKOFF_MAX_SECONDS
from rebuno_sync.kernel_client import KernelClient
from rebuno_sync.types import Execution, LeaseKey, Proposal

from .scenarios import Generation, bundle

__all__ = ["Elsewhere", "named_by_environment"]

_AGENT = "agent"
_SECRET = "shared"
_LONGEST_DELIVERY_SECONDS = 4.0
"""The oldest kernels look for work every two seconds, one after another."""


def named_by_environment() -> Generation | None:
    """The generation of the kernel that the environment names; ``None`` when it names none."""
    if "REBUNO_KERNEL_URL" not in os.environ:
        return None
    return Generation[os.environ["REBUNO_KERNEL_GENERATION"].upper()]


class _Creating(Client):
    """Remembers what it created, to cancel it after the scenario."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(url, token)
        self.created: list[str] = []

    def create(self, *args: object, **named: object) -> Execution:
        execution = super().create(*args, **named)  # type: ignore[arg-type]
        self.created.append(execution.id)
        return execution


class Elsewhere:
    """The kernel of ``REBUNO_KERNEL_URL``."""

    def __init__(self, folder: Path) -> None:
        self._url = os.environ["REBUNO_KERNEL_URL"]
        self.token = os.environ.get("REBUNO_KERNEL_TOKEN", "")
        self.generation = Generation[os.environ["REBUNO_KERNEL_GENERATION"].upper()]
        self._lease_seconds = float(os.environ.get("REBUNO_KERNEL_LEASE_SECONDS", "2"))
        self._receiver = Receiver()
        self._given: set[LeaseKey] = set()
        self._time = threading.Event()
        self._clients: list[Client | KernelClient] = []
        self.operator = _Creating(self._url, self.token)
        self.register(_AGENT)
        self.agent = KernelClient(self._url, _AGENT, _SECRET)

    def bearer(self, token: str) -> Client:
        client = Client(self._url, token)
        self._clients.append(client)
        return client

    def signer(self, agent_id: str, secret: str = _SECRET, signature: str = "v1") -> KernelClient:
        early = self.generation in (Generation.G0, Generation.G1)
        form = "body" if early else signature
        client = KernelClient(self._url, agent_id, secret, signature=form)
        self._clients.append(client)
        return client

    def register(self, agent_id: str, webhook_url: str = "") -> None:
        self.operator.register_agent(agent_id, webhook_url or self._receiver.url, _SECRET)

    register_early = register

    def lease(self, execution_id: str) -> LeaseKey | None:
        # Whatever was not delivered in half a lease is not due: the lease that is held goes on.
        seconds = min(_LONGEST_DELIVERY_SECONDS, self._lease_seconds / 2)
        for _ in range(int(seconds / 0.02)):
            for webhook in list(self._receiver.received):
                lease = webhook.lease
                if lease.execution_id == execution_id and lease not in self._given:
                    self._given.add(lease)
                    self._lease_seconds = webhook.fields.get(
                        "lease_timeout_seconds", self._lease_seconds
                    )
                    return lease
            self._time.wait(0.02)
        return None

    def expire(self, lease: LeaseKey) -> None:
        self.pass_time(1.01)

    def pass_time(self, lease_share: float) -> None:
        self._time.wait(self._lease_seconds * lease_share)

    def pass_back_off(self) -> None:
        self._time.wait(BACKOFF_MAX_SECONDS * 1.25)

    def deliver(self) -> None:
        self._time.wait(_LONGEST_DELIVERY_SECONDS)

    def retire(self, lease: LeaseKey) -> None:
        asking = bundle("retire", "{decision: require_approval}", self.generation)
        self.operator.set_policy(_AGENT, asking)
        self.agent.submit(lease, Proposal("tool_call", "retire", "null"))
        self.operator.set_policy(_AGENT, "")

    def close(self) -> None:
        for execution_id in self.operator.created:
            if not self.operator.get(execution_id).status.terminal:
                self.operator.cancel(execution_id)
        for client in (self.agent, self.operator, *self._clients):
            client.close()
        self._receiver.close()
