"""What comes of a policy test (protocol.md 11.10); ``types`` has it all."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from .wire import Wire

__all__ = ["PolicyReport", "PolicyResult"]


class PolicyResult(Wire):
    """What a policy would say of one call (protocol.md 11.10)."""

    target: str
    kind: str = "tool_call"
    args: Any = None
    name: str = ""
    agent_id: str = ""
    expect: str = ""
    expect_rule: str = ""
    decision: str
    rule_id: str = ""
    reason: str = ""
    passed: bool = Field(alias="pass")
    failure: str = ""
    """Empty when it is as expected."""
    execution_id: str = ""
    step_id: str = ""
    was_rule: str = ""
    """The rule that decided when the call was really made."""


class PolicyReport(Wire):
    """What came of a policy test."""

    results: list[PolicyResult]
    failed: int
    unexercised_rules: list[str] = Field(default_factory=list)
