"""A line to the kernel on which model calls are decided, and deltas collected, as a test says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from rebuno_sync.ports import AgentKernel
from rebuno_sync.types import LeaseKey, Proposal, StepDecision, StepKind

from .faulty_port import FaultyPort

__all__ = ["DecidingPort"]


class DecidingPort(FaultyPort):
    """``decisions`` are what the next model calls get for an answer, as from a policy; ``deltas``
    is what was published; ``on_delta`` happens before a delta gets through."""

    takes_deltas = True

    def __init__(self, kernel: AgentKernel) -> None:
        super().__init__(kernel)
        self.decisions: deque[StepDecision] = deque()
        self.deltas: list[tuple[str, int, str]] = []
        self.on_delta: Callable[[], None] = lambda: None

    def submit(self, lease: LeaseKey, proposal: Proposal) -> StepDecision:
        if proposal.kind == StepKind.LLM_CALL and self.decisions:
            return self.decisions.popleft()
        return super().submit(lease, proposal)

    def delta(self, lease: LeaseKey, step_id: str, seq: int, data: str) -> None:
        self.on_delta()
        self.deltas.append((step_id, seq, data))
