"""What policy says of a new step (protocol.md 11). Without a bundle everything is allowed."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["INDETERMINATE_RETRY", "PERMISSIVE", "Verdict"]


class Verdict(NamedTuple):
    allowed: bool
    rule_id: str
    reason: str = ""


PERMISSIVE = Verdict(allowed=True, rule_id="permissive")

INDETERMINATE_RETRY = Verdict(
    allowed=False,
    rule_id="__indeterminate_retry",
    reason="prior attempt outcome unknown; retry refused",
)
"""A second at_most_once call whose twin ended with an unknown outcome (protocol.md 7.2, 11)."""
