"""``rebuno-sync policies``: bundles checked, set, shown and tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from rebuno_sync.kernel import Kernel

from .conftest import POLICY, begin, step
from .console import Console

BROKEN = """\
default_action: allow
rules:
  - id: a
    then: {decision: maybe}
"""

CASES = """\
agent_id: support
cases:
  - {target: look, args: {n: 5}, expect: allow}
  - {target: refund, expect: require_approval, expect_rule: refunds}
"""


@pytest.fixture
def good(tmp_path: Path) -> Path:
    file = tmp_path / "good.yaml"
    file.write_text(POLICY)
    return file


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    file = tmp_path / "bad.yaml"
    file.write_text(BROKEN)
    return file


@pytest.fixture
def alone(capsys: pytest.CaptureFixture[str]) -> Console:
    """A console that knows no kernel."""
    return Console([], capsys)


# -- without a kernel


def test_check_points_at_the_line_that_is_wrong(alone: Console, good: Path, bad: Path) -> None:
    """And says of the others what they are."""
    said = alone("policies", "check", str(good), str(bad))
    assert (said.code, said.out) == (1, f"{good}: 1 rule, else allow\n")
    first, second = said.err.splitlines()
    assert first.startswith(f"{bad}:4: rules[0].then.decision: must be one of")
    assert second == "    4 |     then: {decision: maybe}"
    assert alone("policies", "check", str(good)).code == 0


def test_check_gives_programs_the_place(alone: Console, good: Path, bad: Path) -> None:
    """As JSON, one member for each file."""
    right, wrong = alone("policies", "check", str(good), str(bad), "--json").json
    assert (right["valid"], right["rules"], right["default_action"]) == (True, 1, "allow")
    assert (wrong["valid"], wrong["line"], wrong["text"]) == (False, 4, BROKEN.splitlines()[3])


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "says nothing"),
        (b"rules: [", "not YAML"),
        (b"\xff", "no text in UTF-8"),
        (b"rules:\n  - {id: a, priority: 1}", "sort them by their priority"),
        (None, "No such file"),
    ],
)
def test_whatever_the_file_is_nothing_but_words_come(
    alone: Console, tmp_path: Path, content: bytes | None, told: str
) -> None:
    """Status 1, and what is wrong."""
    file = tmp_path / "policy.yaml"
    if content is not None:
        file.write_bytes(content)
    said = alone("policies", "check", str(file))
    assert (said.code, said.out) == (1, "")
    assert told in said.err


def test_cases_beside_a_bundle_are_tried_without_a_kernel(alone: Console, good: Path) -> None:
    """Status 1 as soon as one of them is not as expected; a name that is wrong has its line."""
    cases = good.with_suffix(".policytest.yaml")
    cases.write_text(CASES)
    said = alone("policies", "test", str(good))
    assert (said.code, said.err) == (0, "")
    assert "2 calls, 0 not as expected" in said.out
    cases.write_text(CASES.replace("expect: allow", "expect: deny"))
    said = alone("policies", "test", str(good))
    assert (said.code, "FAILED" in said.out, "allow, want deny" in said.out) == (1, True, True)
    for old, new, told in (
        ("expect:", "expct:", "cases[0]: unknown key 'expct'"),
        ("n: 5", "since: 2026-01-31", "cases[0].args: this is not JSON; put dates in quotes"),
    ):
        cases.write_text(CASES.replace(old, new))
        said = alone("policies", "test", str(good))
        assert (said.code, said.out) == (1, "")
        assert f"{cases}:3: {told}" in said.err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "says nothing"),
        ("cases:", "'cases' is missing"),
        ("cases: [null]", "nothing is written here"),
        ("cases: [5]", "a mapping is expected"),
        ("cases: [{target: a, args: 2026-13-45}]", "not all of it is JSON"),
        ("cases: [{target: a, args: !!python/name:os.system {}}]", "not all of it is JSON"),
        ("cases: [{target: a, kind: nap}]", "kind must be one of"),
        ("cases: [{target: a", "not YAML"),
    ],
)
def test_a_file_of_cases_that_is_wrong(alone: Console, good: Path, text: str, told: str) -> None:
    """In words, and status 1."""
    good.with_suffix(".policytest.yaml").write_text(text)
    said = alone("policies", "test", str(good))
    assert (said.code, said.out) == (1, "")
    assert told in said.err


def test_one_call_is_tried(alone: Console, good: Path) -> None:
    """What would be said of it, and by which rule."""
    [result] = alone("policies", "test", str(good), "--target", "refund", "--json").json["results"]
    assert (result["decision"], result["rule_id"]) == ("require_approval", "refunds")
    said = alone("policies", "test", str(good), "--target", "refund", "--args", "{a")
    assert (said.code, "is no JSON" in said.err) == (2, True)
    nothing = alone("policies", "test", str(good))
    assert (nothing.code, "--cases" in nothing.err) == (2, True)


# -- with one


def test_a_policy_is_set_shown_and_removed(kernel: Kernel, console: Console, good: Path) -> None:
    """As it was written; the list says who has one."""
    console.done("policies", "set", "plain", str(good))
    assert kernel.get_agent("plain").policy_bundle == POLICY
    assert console.done("policies", "show", "plain") == POLICY
    console.done("policies", "remove", "plain")
    listed = console.json("policies", "list")
    assert [(it["agent_id"], it["policy_bundle"]) for it in listed] == [
        ("plain", ""),
        ("support", POLICY),
    ]
    assert "none: everything is allowed" in console.done("policies", "list")


def test_a_policy_that_is_wrong_changes_nothing(
    kernel: Kernel, console: Console, bad: Path, tmp_path: Path
) -> None:
    """The line is pointed at; an empty file is no way to allow everything."""
    empty = tmp_path / "empty.yaml"
    empty.touch()
    said = console("policies", "set", "support", str(bad))
    assert (said.code, said.out) == (1, "")
    assert said.err.splitlines()[1] == "    4 |     then: {decision: maybe}"
    assert "policies remove" in console("policies", "set", "support", str(empty)).err
    assert kernel.get_agent("support").policy_bundle == POLICY
    unknown = console("policies", "show", "nobody")
    assert (unknown.code, "rebuno-sync policies list" in unknown.err) == (1, True)


def test_past_calls_are_tried_against_a_new_bundle(
    kernel: Kernel, console: Console, good: Path
) -> None:
    """Those of one execution, or of an agent's last ones; the status says whether all is as it
    was."""
    lease = begin(kernel, "plain")
    step(kernel, lease, "look", 1)
    step(kernel, lease, "refund", 2)
    one = console("policies", "test", str(good), "--execution", lease.execution_id)
    assert one.code == 1
    assert "require_approval, want allow" in one.out
    report = console("policies", "test", str(good), "--past", "5", "--agent", "plain", "--json")
    assert (report.code, report.json["failed"], len(report.json["results"])) == (1, 1, 2)
    later = ("--past", "5", "--agent", "plain", "--since", "2999-01-01T00:00:00Z")
    assert console("policies", "test", str(good), *later).code == 0
    whose = console("policies", "test", str(good), "--past", "5")
    assert (whose.code, "--agent" in whose.err) == (2, True)
