"""How an agent elsewhere gets an execution into a state: the moves of an ``AgentKernel`` that the
rows need, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from kernel_http.wire import Wire

from rebuno_sync.kernel.webhooks import EXTENSIONS
from rebuno_sync.messages import decision_of, outcome_body, submit_body
from rebuno_sync.types import (
    Capture,
    CaptureFailure,
    LeaseKey,
    Proposal,
    Registration,
    StepDecision,
    Wake,
)

__all__ = ["WireAgent"]


class WireAgent:
    """The moves by which an agent elsewhere gets an execution into a state."""

    def __init__(self, wire: Wire, agent_id: str) -> None:
        self._wire = wire
        self._agent_id = agent_id

    def _post(self, lease: LeaseKey, rest: str, body: str = "") -> Any:
        answer = self._wire.act(
            "POST",
            f"/v0/executions/{lease.execution_id}/{rest}",
            body.encode(),
            lease,
            agent=self._agent_id,
            more={"Rebuno-Extensions": ", ".join(EXTENSIONS)},
        )
        assert answer.status < 300, answer
        return answer.json if answer.body else None

    def submit(self, lease: LeaseKey, proposal: Proposal) -> StepDecision:
        return decision_of(self._post(lease, "steps", submit_body(proposal)))

    def complete_step(self, lease: LeaseKey, step_id: str, result: str) -> StepDecision:
        body = outcome_body("result", result)
        return decision_of(self._post(lease, f"steps/{step_id}/complete", body))

    def fail_step(self, lease: LeaseKey, step_id: str, error: str) -> StepDecision:
        return decision_of(self._post(lease, f"steps/{step_id}/fail", outcome_body("error", error)))

    def retrying(
        self, lease: LeaseKey, step_id: str, attempt: int, error: str, retry_in: float
    ) -> StepDecision:
        body = f'{{"attempt":{attempt},"error":{error},"retry_in":{retry_in}}}'
        return decision_of(self._post(lease, f"steps/{step_id}/attempt", body))

    def renew(self, leases: Sequence[LeaseKey]) -> None:
        for lease in leases:
            self._post(lease, "heartbeat")

    def suspend(self, lease: LeaseKey, wake: Wake | None = None) -> bool:
        body = "" if wake is None else json.dumps(wake._asdict())
        return bool(self._post(lease, "suspend", body)["suspended"])

    def complete(self, lease: LeaseKey, output: str) -> None:
        self._post(lease, "complete", outcome_body("output", output))

    def fail(self, lease: LeaseKey, reason: str) -> None:
        self._post(lease, "fail", outcome_body("error", json.dumps(reason)))

    def release(self, lease: LeaseKey, *, interrupted: bool = False) -> None:
        self._post(lease, "release" + "?interrupted=1" * interrupted)

    @property
    def resources(self) -> WireResources:
        return WireResources(self._post)


class WireResources:
    """The same for resources."""

    def __init__(self, post: Callable[[LeaseKey, str, str], Any]) -> None:
        self._post = post

    def register(self, lease: LeaseKey, wanted: Registration) -> None:
        named = ("key", "driver_id", "every_steps")
        body = {name: getattr(wanted, name) for name in named}
        self._post(lease, "resources", json.dumps(body))

    def bind(self, lease: LeaseKey, key: str, binding: str) -> None:
        self._post(lease, f"resources/{key}/binding", outcome_body("binding", binding))

    def keep(
        self, lease: LeaseKey, captures: Sequence[Capture], failures: Sequence[CaptureFailure]
    ) -> None:
        body = {"captures": [it._asdict() for it in captures]}
        self._post(lease, "resources/checkpoints", json.dumps(body))
