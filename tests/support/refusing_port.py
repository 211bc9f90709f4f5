"""A line to a kernel whose policy refuses some effects."""

from __future__ import annotations

from rebuno_sync.types import DecisionKind, LeaseKey, Proposal, StepDecision

from .faulty_port import FaultyPort

__all__ = ["RefusingPort"]


class RefusingPort(FaultyPort):
    """Answers submits of the targets in ``refusals`` with the decision there, and passes every
    other call on."""

    refusals: dict[str, StepDecision]

    def submit(self, lease: LeaseKey, proposal: Proposal) -> StepDecision:
        refusal = self.refusals.get(proposal.target)
        return super().submit(lease, proposal) if refusal is None else refusal

    @staticmethod
    def denied(reason: str, rule_id: str = "") -> StepDecision:
        return StepDecision(DecisionKind.DENIED, reason=reason, rule_id=rule_id)
