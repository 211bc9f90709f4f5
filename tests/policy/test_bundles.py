"""What a bundle may say, and what is said of one that may not (protocol.md 11.2, 11.3)."""

from __future__ import annotations

import sys
from textwrap import dedent

import pytest

from rebuno_sync.kernel.policy import (
    Action,
    Approvers,
    Budget,
    BundleInvalid,
    RateLimit,
    compiled,
)
from rebuno_sync.kernel.policy.durations import duration_seconds

WHOLE = """\
    default_action: allow
    rules:
      - id: everything
        when:
          target: "pay_*"
          targets: [pay_card, pay_bank]
          agent_id: shop
          agent_ids: [shop, desk]
          step_kind: tool_call
          arguments:
            amount.currency: {equals: EUR, contains: U, one_of: [EUR, USD], regex: "^E"}
        then:
          decision: require_approval
          reason: money
          approval_config: {approvers: [alice, bob], timeout: 1h30m, message: "Pay?"}
          rate_limit:
            max_calls: 5
            window: 1m
            per_what: agent
            max_wait: 500ms
            on_limiter_error: deny
          budget: {max_tokens: 1000, scope: execution, on_exceed: require_approval}
      - id: asks a model
        then:
          decision: judge
          judge: {instructions: Be strict, threshold: 0.9, fallback: deny}
"""


def refusal(bundle: str) -> str:
    with pytest.raises(BundleInvalid) as caught:
        compiled(dedent(bundle))
    return str(caught.value)


def rule(text: str) -> str:
    """A bundle of one rule, whose first line is line 2."""
    return "rules:\n" + "".join(
        f"{'  - ' if not at else '    '}{line}\n"
        for at, line in enumerate(dedent(text).strip().splitlines())
    )


def test_everything_that_a_bundle_may_say_is_read() -> None:
    """Each field has its meaning, durations in seconds."""
    policy = compiled(dedent(WHOLE))
    args = '{"amount": {"currency": "EUR"}}'
    verdict = policy.evaluate("shop", "tool_call", "pay_card", args)
    assert verdict.action is Action.REQUIRE_APPROVAL
    assert (verdict.rule_id, verdict.reason) == ("everything", "money")
    assert verdict.approvers == Approvers(("alice", "bob"), 5400.0, "Pay?")
    assert verdict.rate_limit == RateLimit(5, 60.0, "agent", 0.5)
    assert verdict.budget == Budget(1000, "execution", Action.REQUIRE_APPROVAL)
    other = policy.evaluate("shop", "tool_call", "search", "null")
    assert (other.action, other.rule_id) == (Action.DENY, "asks a model")
    assert other.reason == "judge not configured"


def test_a_bundle_has_the_hash_of_its_text() -> None:
    """It says in the log which text decided, to the last space."""
    one, other = compiled("default_action: allow"), compiled("default_action: allow ")
    assert len(one.hash) == 64
    assert one.hash != other.hash


@pytest.mark.parametrize(
    ("bundle", "line", "says"),
    [
        ("rulez: []", 1, "unknown key 'rulez'"),
        ("default_action: maybe", 1, "default_action"),
        ("default_action: allow\ndefault_action: deny", 2, "stands here twice"),
        ("rules: 5", 1, "a list is expected"),
        ("rules:\n  - 5", 2, "a mapping is expected"),
        ("- a", 1, "a mapping is expected"),
        ("{a: b", 1, "not YAML"),
        ("a: b: c", 1, "not YAML"),
        ("rules: []\n---\nrules: []", 2, "not YAML"),
        ("# nothing", 1, "says nothing"),
        ("~", 1, "says nothing"),
        ("rules: []\n# \0", 2, "U+0000 must not stand"),
        ("rules: []\n# \ud800", 2, "U+D800 must not stand"),
        ("rules: []\n<<: {default_action: allow}", 2, "unknown key '<<'"),
        (rule("then: {decision: allow}"), 2, "needs an id"),
        (rule("id: ''\nthen: {decision: allow}"), 2, "needs an id"),
        (rule("id: a"), 2, "no 'then'"),
        (rule("id: a\nthen: {reason: b}"), 3, "decision is missing"),
        (rule("id: a\nthen: {decision: perhaps}"), 3, "not 'perhaps'"),
        (rule("id: a\nthen: {decision: Allow}"), 3, "not 'Allow'"),
        (rule("id: a\nthen: {decision: allow, rule_id: b}"), 3, "unknown key 'rule_id'"),
        (rule("id: a\nwhen: {tool: b}\nthen: {decision: allow}"), 3, "unknown key 'tool'"),
        (rule("id: a\nwhen: {target: '[a'}\nthen: {decision: allow}"), 3, "is no glob"),
        (
            rule("id: a\nwhen:\n  targets:\n    - ok\n    - '\\'\nthen: {decision: allow}"),
            6,
            "glob",
        ),
        (rule("id: a\nwhen: {target: [b]}\nthen: {decision: allow}"), 3, "single value"),
        (
            rule("id: a\nwhen:\n  arguments:\n    x: {regex: '('}\nthen: {decision: allow}"),
            5,
            "arguments.x.regex: '(' is no RE2 pattern",
        ),
        (
            rule("id: a\nwhen:\n  arguments:\n    x: {regex: 'a(?=b)'}\nthen: {decision: allow}"),
            5,
            "RE2",
        ),
        (
            rule("id: a\nwhen:\n  arguments:\n    x: {equals: ''}\nthen: {decision: allow}"),
            5,
            "says nothing",
        ),
        (
            rule("id: a\nwhen:\n  arguments:\n    x:\nthen: {decision: allow}"),
            5,
            "arguments.x: says nothing",
        ),
        (
            rule("id: a\nwhen:\n  arguments:\n    x: {one_of: [null]}\nthen: {decision: deny}"),
            5,
            "arguments.x.one_of[0]: nothing is written here",
        ),
        (rule("id: a\nwhen: {arguments: {x: 5}}\nthen: {decision: allow}"), 3, "mapping"),
        (
            rule("id: a\nthen:\n  decision: allow\n  rate_limit: {max_calls: x}"),
            5,
            "max_calls: a whole number is expected, not 'x'",
        ),
        (
            rule("id: a\nthen:\n  decision: allow\n  rate_limit: {max_calls: '5'}"),
            5,
            "a whole number is expected",
        ),
        (
            rule("id: a\nthen:\n  decision: allow\n  rate_limit: {max_calls: 010}"),
            5,
            "a whole number is expected",
        ),
        (
            rule("id: a\nthen:\n  decision: allow\n  rate_limit: {window: 60}"),
            5,
            "window: 60 has no unit",
        ),
        (
            rule("id: a\nthen:\n  decision: allow\n  rate_limit: {window: 1 minute}"),
            5,
            "is no duration",
        ),
        (
            rule("id: a\nthen:\n  decision: allow\n  rate_limit: {per_what: user}"),
            5,
            "not 'user'",
        ),
        (
            rule("id: a\nthen:\n  decision: allow\n  rate_limit: {on_limiter_error: wait}"),
            5,
            "not 'wait'",
        ),
        (rule("id: a\nthen:\n  decision: allow\n  budget: {scope: agent}"), 5, "not 'agent'"),
        (rule("id: a\nthen:\n  decision: allow\n  budget: {on_exceed: allow}"), 5, "not 'allow'"),
        (rule("id: a\nthen:\n  decision: allow\n  judge: {threshold: 0.5}"), 5, "decision: judge"),
        (rule("id: a\nthen:\n  decision: judge\n  judge: {threshold: 1.5}"), 5, "from 0 to 1"),
        (rule("id: a\nthen:\n  decision: judge\n  judge: {threshold: high}"), 5, "a number"),
        (rule("id: a\nthen:\n  decision: judge\n  judge: {fallback: judge}"), 5, "not 'judge'"),
        (
            rule(
                "id: a\nthen:\n  decision: require_approval\n  approval_config: {approvers: ['']}"
            ),
            5,
            "an approver needs a name",
        ),
        (
            rule("id: a\nthen:\n  decision: require_approval\n  approval_config: {timeout: 0}"),
            5,
            "0 has no unit",
        ),
        (
            rule("id: a\nthen: {decision: allow}") + "  - id: a\n    then: {decision: deny}\n",
            4,
            "another rule has the id 'a'",
        ),
    ],
)
def test_a_mistake_is_told_with_its_line(bundle: str, line: int, says: str) -> None:
    """Nothing is guessed and nothing is ignored: the message leads to the place."""
    told = refusal(bundle)
    assert told.startswith(f"line {line}: "), told
    assert says in told


def test_a_bundle_of_the_first_generation_is_told_how_to_convert_it() -> None:
    """Rules with priorities mean something else by their order."""
    told = refusal(rule("id: a\npriority: 10\nthen: {decision: allow}"))
    assert told.startswith("line 3: rules[0]: unknown key 'priority'; ")
    assert "sort them by their priority" in told


@pytest.mark.parametrize("given", ["5", "true", "2026-01-01", "1.50", "0x10"])
def test_what_is_given_for_a_text_is_taken_as_it_is_written(given: str) -> None:
    """A number in the bundle is compared by its digits."""
    text = f"id: a\nwhen: {{arguments: {{x: {{equals: {given}}}}}}}\nthen: {{decision: allow}}"
    policy = compiled(rule(text))
    assert policy.evaluate("", "tool_call", "t", f'{{"x": "{given}"}}').action is Action.ALLOW


@pytest.mark.parametrize("nothing", ["", "~", "null", "''"])
def test_what_is_left_empty_asks_for_nothing(nothing: str) -> None:
    """As if the key were not there."""
    text = f"id: a\nwhen:\n  target: {nothing}\n  agent_id: {nothing}\nthen: {{decision: allow}}"
    assert compiled(rule(text)).evaluate("x", "tool_call", "t", "null").rule_id == "a"


def test_a_document_that_contains_itself_is_no_trap() -> None:
    """An anchor may lead back to its own mapping."""
    assert "more than 50000 values" in refusal("&a\nself: *a\n")


def test_a_few_lines_of_aliases_hold_up_nobody() -> None:
    """What aliases repeat counts each time, and there is an end to it; as to the text itself."""
    globs = ", ".join(f"a{at}*" for at in range(1000))
    rules = [f"- {{id: r{at}, when: *w, then: {{decision: allow}}}}" for at in range(100)]
    first = f"- {{id: r, when: &w {{targets: [{globs}]}}, then: {{decision: allow}}}}"
    assert "more than 50000 values" in refusal("\n".join(["rules:", first, *rules]))
    assert "are too many" in refusal("#" * 300_000)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("300ms", 0.3),
        ("30s", 30),
        ("1h30m", 5400),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("1us", 1e-6),
        ("1\u00b5s", 1e-6),
        ("1ns", 1e-9),
        ("-5s", -5),
        ("0", 0),
    ],
)
def test_durations_are_those_of_go(text: str, seconds: float) -> None:
    """Numbers with units, one after another."""
    assert duration_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "s", "5 s", "5sec", "1d", ".s", "5s ", "300000h1e9s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """With what one looks like."""
    with pytest.raises(ValueError, match="write one like"):
        duration_seconds(text)


def test_a_duration_has_an_end() -> None:
    """Go counts nanoseconds in 64 bits."""
    with pytest.raises(ValueError, match="292 years"):
        duration_seconds("9999999999h")


def test_policies_load_their_libraries_when_they_are_used() -> None:
    """A kernel without policies needs neither; so does an import."""
    import subprocess

    program = "import sys, rebuno_sync.kernel; print({'yaml', 're2'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "set()"
