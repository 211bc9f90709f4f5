"""Globs, arguments and the order of rules (protocol.md 11.4 to 11.6)."""

from __future__ import annotations

import json
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebuno_sync.kernel.policy import Action, compiled
from rebuno_sync.kernel.policy.arguments import Constraint, members_of, value_of
from rebuno_sync.kernel.policy.patterns import PatternInvalid, matches_glob, searches


@pytest.mark.parametrize(
    ("glob", "text", "expected"),
    [
        ("search", "search", True),
        ("search", "searches", False),
        ("search", "Search", False),
        ("", "", True),
        ("", "a", False),
        ("*", "", True),
        ("*", "a/b\nc", True),
        ("mcp_*", "mcp_a/b", True),
        ("a*b*c", "aXbYc", True),
        ("a*b*c", "aXbYcZ", False),
        ("?", "/", True),
        ("?", "\n", True),
        ("?", "\U0001f600", True),
        ("?", "", False),
        ("a?c", "abc", True),
        ("[abc]", "b", True),
        ("[abc]", "d", False),
        ("[a-z]", "q", True),
        ("[^a-z]", "/", True),
        ("[^a-z]", "\n", True),
        ("[^a-z]", "q", False),
        ("[z-a]", "m", False),
        ("[^z-a]", "m", True),
        ("[\\]\\-]", "]", True),
        ("[\\]\\-]", "-", True),
        ("[a\\-z]", "m", False),
        ("[!a]", "!", True),
        ("[!a]", "b", False),
        ("[.]", ".", True),
        ("a.c", "abc", False),
        ("a+", "aa", False),
        ("(a)", "(a)", True),
        ("{a,b}", "a", False),
        ("{a,b}", "{a,b}", True),
        ("\\*", "*", True),
        ("\\*", "a", False),
        ("tool[1]", "tool[1]", False),
        ("tool\\[1]", "tool[1]", True),
        ("**", "a/b", True),
        ("\u00e9*", "\u00e9t\u00e9", True),
    ],
)
def test_globs(glob: str, text: str, expected: bool) -> None:
    """The whole text has to match, and everything matches a slash too."""
    assert matches_glob(glob)(text) is expected


@pytest.mark.parametrize(
    "glob", ["[", "[]", "[]a]", "[a", "[a-", "[a-]", "[-a]", "[^]", "a\\", "[\\"]
)
def test_what_is_no_glob_is_refused(glob: str) -> None:
    """It does not silently match nothing."""
    with pytest.raises(PatternInvalid, match="is no glob"):
        matches_glob(glob)


def covers(glob: str, text: str) -> bool:
    """A glob of literals, ``*`` and ``?``, done the slow way."""
    if not glob:
        return not text
    if glob[0] == "*":
        return covers(glob[1:], text) or (bool(text) and covers(glob, text[1:]))
    return bool(text) and glob[0] in ("?", text[0]) and covers(glob[1:], text[1:])


@given(st.text("ab/.*?", max_size=8), st.text("ab/.\n", max_size=8))
def test_globs_match_as_a_plain_search_does(glob: str, text: str) -> None:
    """Whatever is made of them for RE2."""
    assert matches_glob(glob)(text) is covers(glob, text)


@given(st.text(max_size=6))
def test_a_glob_of_escaped_characters_matches_them_alone(text: str) -> None:
    """Nothing of RE2's syntax shows through."""
    glob = matches_glob("".join("\\" + char for char in text))
    assert glob(text)
    assert not glob(text + "x")


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("^prod-.*", "prod-123", True),
        ("^prod-.*", "prod", False),
        ("rod", "prod-123", True),
        ("a$", "a\n", False),
        ("\\d", "\u0663", False),
        ("\\w", "\u00e9", False),
        ("a.b", "a\nb", False),
        ("(?s)a.b", "a\nb", True),
        ("[[:alpha:]]+", "abc", True),
        ("a\\z", "a", True),
    ],
)
def test_patterns_are_those_of_re2(pattern: str, text: str, expected: bool) -> None:
    """Found anywhere, and not as Python reads them."""
    assert searches(pattern)(text) is expected


def test_no_pattern_can_hold_the_kernel_up() -> None:
    """What takes a backtracking engine longer than the universe lasts takes no time here."""
    assert not searches("(a*)*(a|b)*c$")("ab" * 50_000)


# -- arguments


@pytest.mark.parametrize(
    ("args", "key", "text"),
    [
        ({"a": "b"}, "a", "b"),
        ({"a": True}, "a", "true"),
        ({"a": None}, "a", "null"),
        ({"a": [1, "x", {"b": 1}]}, "a", '[1,"x",{"b":1}]'),
        ({"a": {"z": 1, "b": "\u00e9<"}}, "a", '{"z":1,"b":"\u00e9<"}'),
        ({"a": {"b": {"c": 5}}}, "a.b.c", "5"),
        ({"a.b": 1, "a": {"b": 2}}, "a.b", "1"),
        ({"a": {"b.c": 3}}, "a.b.c", "3"),
        ({"a.b": {"c": 3}}, "a.b.c", None),
        ({"a": [{"b": 1}]}, "a.0.b", None),
        ({"a": 1}, "b", None),
        ({"a": 1}, "a.b", None),
        ({"": 1}, "", "1"),
    ],
)
def test_values_by_key(args: object, key: str, text: str | None) -> None:
    """As they are, or step by step through objects."""
    members = members_of(json.dumps(args))
    assert members is not None
    assert value_of(members, key) == text


@pytest.mark.parametrize(
    "number", ["5", "1.50", "100000", "1234567", "0.00001", "1e-05", "1E+2", "-0", "1e400"]
)
def test_numbers_are_compared_as_they_are_written(number: str) -> None:
    """No arithmetic comes between the call and the rule, whatever the number's size."""
    members = members_of(f'{{"n": {number}, "list": [{number}]}}')
    assert members is not None
    assert value_of(members, "n") == number
    assert value_of(members, "list") == f"[{number}]"


@pytest.mark.parametrize("args", ["null", "[]", "5", '"text"'])
def test_arguments_that_are_no_object_satisfy_no_rule_about_them(args: str) -> None:
    """There is nothing to look a key up in."""
    assert members_of(args) is None


def test_every_constraint_has_to_hold() -> None:
    """They are joined by 'and'."""
    both = Constraint(contains="a", one_of=("ab", "cd"))
    assert both.holds("ab")
    assert not both.holds("cd")
    assert not both.holds("a")


# -- rules


def decided(bundle: str, *call: str) -> tuple[str, str, str]:
    verdict = compiled(dedent(bundle)).evaluate(*call)
    return str(verdict.action), verdict.rule_id, verdict.reason


ORDERED = """\
    rules:
      - id: no secrets
        when: {arguments: {path: {contains: secret}}}
        then: {decision: deny, reason: secrets}
      - id: read
        when: {target: read_*, step_kind: tool_call}
        then: {decision: allow}
      - id: late
        when: {target: read_file}
        then: {decision: deny}
"""


@pytest.mark.parametrize(
    ("kind", "target", "args", "expected"),
    [
        ("tool_call", "read_file", '{"path": "a"}', ("allow", "read", "")),
        ("tool_call", "read_file", '{"path": "secret"}', ("deny", "no secrets", "secrets")),
        ("tool_call", "write", "{}", ("deny", "default", "no explicit allow rule matched")),
        ("llm_call", "read_file", "{}", ("deny", "late", "")),
        ("local", "clock", "null", ("allow", "local", "local step")),
        ("local", "read_file", "null", ("deny", "late", "")),
    ],
)
def test_the_first_rule_that_matches_decides(
    kind: str, target: str, args: str, expected: tuple[str, str, str]
) -> None:
    """In the order of the document; local steps are allowed unless a rule speaks of them."""
    assert decided(ORDERED, "agent", kind, target, args) == expected


def test_the_default_may_be_to_allow() -> None:
    """It says so."""
    assert decided("default_action: allow", "agent", "tool_call", "t", "{}") == (
        "allow",
        "default",
        "default allow",
    )


@pytest.mark.parametrize(("agent", "rule"), [("a", "both"), ("b", "default"), ("A", "default")])
def test_all_that_is_given_has_to_match(agent: str, rule: str) -> None:
    """A target and a list of targets, an agent and a list of agents."""
    bundle = """\
        rules:
          - id: both
            when: {target: "*_card", targets: ["pay*", "book*"], agent_id: a, agent_ids: [a, b]}
            then: {decision: allow}
    """
    assert decided(bundle, agent, "tool_call", "pay_card", "{}")[1] == rule
    assert decided(bundle, agent, "tool_call", "pay_bank", "{}")[1] == "default"
    assert decided(bundle, agent, "tool_call", "get_card", "{}")[1] == "default"


def test_a_verdict_tells_the_policy_that_gave_it() -> None:
    """By its hash, defaults included."""
    policy = compiled("default_action: allow")
    verdict = policy.evaluate("agent", "tool_call", "t", "{}")
    assert verdict.policy_hash == policy.hash
    assert verdict.action is Action.ALLOW
