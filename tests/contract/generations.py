"""Agents of earlier generations, as they speak to a kernel (protocol.md 0.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rebuno_sync.kernel_client import KernelClient
from rebuno_sync.types import LeaseKey, Proposal, Renewal, StepDecision

__all__ = ["FirstGeneration"]


def _unnamed(lease: LeaseKey) -> LeaseKey:
    """Nothing but the execution."""
    return LeaseKey(lease.execution_id, "", 0)


class FirstGeneration:
    """An agent of G0: it names its dispatch when it submits, and no lease otherwise.

    ``client``: signs the body alone.
    """

    def __init__(self, client: KernelClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        """What is asked without a lease."""
        return getattr(self._client, name)

    def submit(self, lease: LeaseKey, proposal: Proposal) -> StepDecision:
        return self._client.submit(lease._replace(attempt=0), proposal)

    def complete_step(self, lease: LeaseKey, step_id: str, result: str) -> StepDecision:
        return self._client.complete_step(_unnamed(lease), step_id, result)

    def fail_step(self, lease: LeaseKey, step_id: str, error: str) -> StepDecision:
        return self._client.fail_step(_unnamed(lease), step_id, error)

    def delta(self, lease: LeaseKey, step_id: str, seq: int, data: str) -> None:
        self._client.delta(_unnamed(lease), step_id, seq, data)

    def renew(self, leases: Sequence[LeaseKey]) -> list[Renewal]:
        return self._client.renew([_unnamed(lease) for lease in leases])

    def complete(self, lease: LeaseKey, output: str) -> None:
        self._client.complete(_unnamed(lease), output)

    def fail(self, lease: LeaseKey, reason: str) -> None:
        self._client.fail(_unnamed(lease), reason)
