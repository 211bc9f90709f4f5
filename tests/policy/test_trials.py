"""Policy tests: expectations against what a bundle says (protocol.md 11.10)."""

from __future__ import annotations

from textwrap import dedent

import pytest

from rebuno_sync.kernel.policy import CaseInvalid, TrialCase, compiled, try_out

BUNDLE = dedent(
    """\
    rules:
      - id: look
        when: {target: look, agent_id: desk}
        then: {decision: allow, rate_limit: {max_calls: 1, window: 1h}}
      - id: pay
        when: {target: pay, arguments: {cents: {equals: 5}}}
        then: {decision: require_approval, reason: money}
    """
)


def trial(case: TrialCase) -> tuple[str, str, str]:
    (only,) = try_out(compiled(BUNDLE), "desk", [case]).trials
    return str(only.action), only.rule_id, only.failure


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (TrialCase("look"), ("allow", "look", "")),
        (TrialCase("look", agent_id="shop"), ("deny", "default", "")),
        (TrialCase("pay", args='{"cents": 5}', expect="require_approval", expect_rule="pay"),
         ("require_approval", "pay", "")),
        (TrialCase("pay", args='{"cents": 5}', expect="allow", expect_rule="look"),
         ("require_approval", "pay", "require_approval, want allow")),
        (TrialCase("pay", expect="deny", expect_rule="pay"),
         ("deny", "default", "rule default, want pay")),
        (TrialCase("clock", kind="local", expect="allow"), ("allow", "local", "")),
    ],
)  # fmt: skip
def test_a_case_is_held_against_its_expectation(
    case: TrialCase, expected: tuple[str, str, str]
) -> None:
    """The decision first, then the rule."""
    assert trial(case) == expected


def test_limits_have_no_part_in_it() -> None:
    """A rule's second call is decided as its first."""
    report = try_out(compiled(BUNDLE), "desk", [TrialCase("look", expect="allow")] * 3)
    assert report.failed == 0
    assert report.unexercised_rules == ["pay"]


@pytest.mark.parametrize(
    ("case", "says"),
    [
        (TrialCase(""), "case 2: missing target"),
        (TrialCase("t", kind="tool"), "case 2: kind must be"),
        (TrialCase("t", expect="judge"), "case 2: expect must be"),
        (TrialCase("t", args="[" * 400 + "]" * 400), "case 2: args: .* nested deeper"),
        (TrialCase("t", args="{"), "case 2: args: invalid JSON"),
    ],
)
def test_a_case_that_says_nothing_is_refused(case: TrialCase, says: str) -> None:
    """By its number."""
    with pytest.raises(CaseInvalid, match=says):
        try_out(compiled(BUNDLE), "desk", [TrialCase("t"), case])
