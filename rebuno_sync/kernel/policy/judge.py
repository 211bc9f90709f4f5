"""Judges: models that decide where a rule leaves it to them (protocol.md 11.9)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from .verdict import Action

__all__ = ["NOT_CONFIGURED", "Judge", "Judgement", "Terms"]


class Terms(NamedTuple):
    """What a rule asks of a judge."""

    instructions: str = ""
    threshold: float = 0.6
    fallback: Action = Action.REQUIRE_APPROVAL


class Judgement(NamedTuple):
    action: Action
    reason: str


class Judge(Protocol):
    """Decides on one call."""

    def __call__(self, agent_id: str, target: str, args: str, terms: Terms) -> Judgement: ...


def NOT_CONFIGURED(agent_id: str, target: str, args: str, terms: Terms) -> Judgement:
    """The judge of a kernel that has none: it denies."""
    return Judgement(Action.DENY, "judge not configured")
