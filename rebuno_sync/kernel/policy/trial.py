"""Policy tests (protocol.md 11.10): what a bundle would say of calls, without running any."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...canonical import canonicalize
from ...types import StepKind
from .rules import Policy
from .verdict import Action

__all__ = ["CaseInvalid", "Report", "Trial", "TrialCase", "try_out"]


class CaseInvalid(ValueError):
    """A case of a policy test says nothing that can be tried."""


class TrialCase(NamedTuple):
    """A call, and what is expected of it; empty expectations always pass."""

    target: str
    kind: str = StepKind.TOOL_CALL
    args: str = "null"
    """JSON text."""
    name: str = ""
    agent_id: str = ""
    expect: str = ""
    expect_rule: str = ""
    execution_id: str = ""
    step_id: str = ""
    was_rule: str = ""
    """The rule that decided when the call was really made."""


class Trial(NamedTuple):
    """What was said of one case."""

    case: TrialCase
    action: Action
    rule_id: str
    reason: str
    failure: str
    """Empty when it is as expected."""


class Report(NamedTuple):
    trials: list[Trial]
    unexercised_rules: list[str]
    """The rules that decided no case, in their order."""

    @property
    def failed(self) -> int:
        return sum(1 for trial in self.trials if trial.failure)


def try_out(policy: Policy, agent_id: str, cases: Iterable[TrialCase]) -> Report:
    """Ask the policy about every case. ``agent_id``: of cases that name none.

    Rate limits and budgets have no part in it. Raises ``CaseInvalid``.
    """
    trials: list[Trial] = []
    for number, case in enumerate(cases, 1):
        _check(case, number)
        verdict = policy.evaluate(case.agent_id or agent_id, case.kind, case.target, case.args)
        trials.append(
            Trial(
                case,
                verdict.action,
                verdict.rule_id,
                verdict.reason,
                _failure(case, verdict.action, verdict.rule_id),
            )
        )
    decided = {trial.rule_id for trial in trials}
    return Report(trials, [rule.id for rule in policy.rules if rule.id not in decided])


def _check(case: TrialCase, number: int) -> None:
    if not case.target:
        raise CaseInvalid(f"case {number}: missing target")
    if case.kind not in tuple(StepKind):
        raise CaseInvalid(
            f"case {number}: kind must be one of {', '.join(StepKind)}, not {case.kind!r}"
        )
    if case.expect and case.expect not in tuple(Action):
        raise CaseInvalid(
            f"case {number}: expect must be one of {', '.join(Action)}, not {case.expect!r}"
        )
    try:
        canonicalize(case.args)
    except ValueError as error:
        raise CaseInvalid(f"case {number}: args: {error}") from None


def _failure(case: TrialCase, action: Action, rule_id: str) -> str:
    if case.expect and case.expect != action:
        return f"{action}, want {case.expect}"
    if case.expect_rule and case.expect_rule != rule_id:
        return f"rule {rule_id}, want {case.expect_rule}"
    return ""
