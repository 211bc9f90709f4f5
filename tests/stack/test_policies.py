"""What a handler is told of an effect that policy refuses (protocol.md 13.8)."""

from __future__ import annotations

import pytest
from support.attempts import AGENT

import rebuno_sync as rebuno
from rebuno_sync.errors import ExecutionFailed, PolicyError, RateLimited
from rebuno_sync.kernel import Kernel

BUNDLE = """
default_action: allow
rules:
  - id: no money
    when: {target: charge, arguments: {cents: {regex: "[0-9]{4}"}}}
    then: {decision: deny, reason: too much}
  - id: no clocks
    when: {target: clock}
    then: {decision: deny}
  - id: seldom
    when: {target: search}
    then: {decision: allow, rate_limit: {max_calls: 2, window: 1h}}
"""


@rebuno.tool
def charge(cents: int) -> str:
    return f"charged {cents}"


@rebuno.tool
def search(text: str) -> str:
    return text


@pytest.fixture
def ruled(kernel: Kernel) -> Kernel:
    kernel.register_agent(AGENT)
    kernel.set_policy(AGENT, BUNDLE)
    return kernel


def test_a_denied_tool_answers_with_a_text_for_the_model(ruled: Kernel) -> None:
    """By its arguments, as they were called; the handler goes on."""
    told = rebuno.run(lambda: [charge(999), charge(cents=1000)], agent=AGENT, kernel=ruled)
    assert told[0] == "charged 999"
    assert "charge not allowed" in told[1]
    assert "too much" in told[1]


def test_a_denied_step_raises_with_its_rule(ruled: Kernel) -> None:
    """The default reason is the protocol's."""
    seen: list[PolicyError] = []

    def handler() -> None:
        try:
            rebuno.step("clock", lambda: 1)
        except PolicyError as error:
            seen.append(error)
            raise

    with pytest.raises(ExecutionFailed) as caught:
        rebuno.run(handler, agent=AGENT, kernel=ruled)
    assert caught.value.reason == "policy_denied"
    assert (seen[0].message, seen[0].rule_id) == ("policy_denied", "no clocks")


def test_a_limited_tool_raises_and_the_handler_may_go_on(ruled: Kernel) -> None:
    """It is no step, so nothing is replayed of it."""

    def handler() -> list[str]:
        found = [search(text) for text in ("a", "b")]
        with pytest.raises(RateLimited, match="rate_limit_exceeded"):
            search("c")
        return [*found, charge(1)]

    assert rebuno.run(handler, agent=AGENT, kernel=ruled) == ["a", "b", "charged 1"]


def test_a_replay_asks_no_policy(ruled: Kernel) -> None:
    """What was allowed stays allowed for the execution that did it."""

    def handler(key: str) -> str:
        return search(key)

    assert rebuno.run(handler, {"key": "k"}, key="k", agent=AGENT, kernel=ruled) == "k"
    ruled.set_policy(AGENT, "default_action: deny")
    assert rebuno.run(handler, {"key": "k"}, key="k", agent=AGENT, kernel=ruled) == "k"
    assert "not allowed" in rebuno.run(handler, {"key": "l"}, agent=AGENT, kernel=ruled)
