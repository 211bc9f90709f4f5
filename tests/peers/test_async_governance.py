"""Agents of the async SDKs under a policy of our kernel: refusals, rates, budgets, people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.provider_server import Provider
from support.waiting import wait_until

from .features import shows
from .operators import Refused
from .sites import AGENT, Site

pytestmark = pytest.mark.slow

DAY = "24h"


def rule(target: str, decision: str = "allow", **then: object) -> dict[str, Any]:
    """One for a target, whose id it is."""
    return {"id": target, "when": {"target": target}, "then": {"decision": decision, **then}}


def budget(max_tokens: int) -> dict[str, Any]:
    """A rule for model calls."""
    then = {"decision": "allow", "budget": {"max_tokens": max_tokens}}
    return {"id": "models", "when": {"step_kind": "llm_call"}, "then": then}


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as provider:
        yield provider


# -- denied


@shows("denied effects")
def test_a_denied_tool_is_told_to_an_async_agent(site: Site) -> None:
    """Its call returns a text with the reason, its body does not run, and the handler goes on."""
    site.govern(rule("delete", "deny", reason="not_today"))
    execution_id = site.begin("use", target="delete", times=2)
    said = "delete not allowed. reason: [policy_denied] not_today (HTTP 403)"
    assert site.end(execution_id) == [said, said]
    assert site.log.count("delete") == 0
    steps = site.client.list_steps(execution_id)
    assert [(it.status, it.error) for it in steps] == [
        ("denied", {"reason": "not_today", "rule_id": "delete"})
    ] * 2


@shows("denied effects")
def test_a_denied_step_fails_an_async_agent(site: Site) -> None:
    """With the policy's reason, when the handler lets the error pass."""
    site.govern(rule("guess", "deny", reason="no_guessing"))
    assert site.fails("local", name="guess") == "no_guessing"
    site.govern(rule("guess", "deny", reason="No guessing!"))
    assert site.fails("local", name="guess") == "policy_denied: No guessing!"


@shows("denied effects", "model calls")
def test_a_denied_model_call_fails_an_async_agent(site: Site, provider: Provider) -> None:
    """The refusal that its client got for an answer is found in the error that it made of it."""
    site.govern(rule("m", "deny", reason="no_models"))
    assert site.fails("ask_or_fail", url=provider.url, questions=["why"]) == "no_models"
    assert provider.requests == []


@shows("denied effects")
def test_what_an_async_agent_did_tries_a_policy(site: Site) -> None:
    """Its execution is a case of a policy test."""
    site.govern(rule("erase", "deny"))
    execution_id = site.begin("use", target="erase")
    site.end(execution_id)
    report = site.client.test_policy(AGENT, execution_id=execution_id)
    assert [(it.target, it.decision, it.passed) for it in report.results] == [
        ("erase", "deny", True)
    ]
    lax = json.dumps({"default_action": "allow"})
    assert site.client.test_policy(AGENT, lax, execution_id=execution_id).failed == 1


@shows("MCP tools")
def test_an_async_agents_mcp_tools_are_governed(site: Site) -> None:
    """By the names that they have with their prefix."""
    site.govern(rule("far_sub", "deny", reason="no"))
    assert site.act("mcp", name="add") == {"called": "add", "a": 1}
    assert site.act("mcp", name="sub").startswith("far_sub not allowed. reason: ")


# -- rates


@shows("rate limits")
def test_a_rate_limit_is_told_to_an_async_agent(site: Site) -> None:
    """What is beyond it raises, no body runs for it, and no step is kept of it."""
    site.govern(rule("mail", rate_limit={"max_calls": 2, "window": DAY}))
    execution_id = site.begin("use", target="mail", times=3)
    first, second, third = site.end(execution_id)
    sent = site.log.of("mail")
    assert [first, second] == [f"x {line.token}" for line in sent]
    assert third == "limited: rate_limit_exceeded"
    assert len(site.client.list_steps(execution_id)) == 2
    assert site.told(execution_id).count("step.rate_limited") == 1


@shows("rate limits")
def test_a_rate_limit_fails_an_async_agent(site: Site) -> None:
    """With its reason, when the handler lets the error pass."""
    site.govern(rule("post", rate_limit={"max_calls": 1, "window": DAY}))
    assert site.fails("use_freely", target="post", times=2) == "rate_limit_exceeded"


@shows("rate limits", "model calls")
def test_a_rate_limit_of_model_calls(site: Site, provider: Provider) -> None:
    """Its client is answered with 429, and what it makes of it fails the agent."""
    site.govern(rule("m", rate_limit={"max_calls": 1, "window": DAY}))
    [first, second] = site.act("ask", url=provider.url, questions=["one", "two"])
    assert (first[0], second[0]) == (200, 429)
    refused = json.loads(second[1])["error"]
    assert refused["message"] == "rebuno_refusal: rate_limited reason=rate_limit_exceeded"
    reason = site.fails("ask_or_fail", url=provider.url, questions=["one", "two"])
    assert reason == "rate_limit_exceeded"
    assert len(provider.requests) == 2


@shows("waits for a rate")
def test_an_async_agent_is_parked_until_a_rate_allows_it(site: Site) -> None:
    """It ends, is delivered again in time, and goes on: nothing runs twice."""
    limit = {"max_calls": 1, "window": "1500ms", "max_wait": "1500ms"}
    site.govern(rule("poll", rate_limit=limit))
    execution_id = site.begin("use_freely", target="poll", times=2)
    assert site.end(execution_id) == [line.token for line in site.log.of("poll")]
    assert site.log.count("poll") == 2
    told = site.told(execution_id)
    assert told.count("step.rate_limited") == 1
    assert "execution.blocked" not in told


# -- budgets


@shows("token budgets", "model calls")
def test_a_budget_of_an_async_agent(site: Site, provider: Provider) -> None:
    """What its recording client records is counted: the call that crosses the limit is the last,
    and the next is refused without asking the provider."""
    site.govern(budget(30))  # A completion of the provider has 18.
    said = site.act("ask", url=provider.url, questions=["one", "two", "three"])
    assert [status for status, _ in said] == [200, 200, 403]
    message = json.loads(said[2][1])["error"]["message"]
    assert message == "rebuno_refusal: denied reason=execution_token_budget_exceeded"
    assert len(provider.requests) == 2


@shows("token budgets", "model calls")
def test_a_budget_of_streamed_calls(site: Site, provider: Provider) -> None:
    """The usage in the last piece of a recorded stream counts too."""
    site.govern(budget(10))
    said = site.act("ask", url=provider.url, questions=["one", "two"], stream=True)
    assert [status for status, _ in said] == [200, 403]


# -- people


@shows("approvals")
def test_an_async_agent_waits_for_a_person_whom_an_async_client_speaks_for(site: Site) -> None:
    """The granted tool runs once, though it must not run twice, and what came before is replayed;
    only those whom the rule names decide, once."""
    ask = {"approvers": ["alice"], "message": "Deliver?"}
    site.govern(rule("deliver", "require_approval", approval_config=ask))
    execution_id = site.begin("use", target="deliver", idempotency="at_most_once")
    approval = site.asked(execution_id)
    assert site.client.get(execution_id).status == "blocked"
    assert site.operator.ask("get_approval", approval["id"]) == approval
    assert (approval["status"], approval["message"]) == ("pending", "Deliver?")
    with pytest.raises(Refused) as mallory:
        site.operator.ask("grant_approval", approval["id"], decided_by="mallory")
    assert mallory.value.name == "ForbiddenError"
    site.operator.ask("grant_approval", approval["id"], decided_by="alice", rationale="fine")
    with pytest.raises(Refused) as late:
        site.operator.ask("deny_approval", approval["id"], decided_by="alice")
    assert late.value.name == "ConflictError"
    assert site.end(execution_id) == [f"x {line.token}" for line in site.log.of("deliver")]
    assert site.log.count("deliver") == 1
    decided = site.operator.ask("get_approval", approval["id"])
    assert (decided["status"], decided["decided_by"]) == ("granted", "alice")
    assert decided["rationale"] == "fine"


@shows("approvals")
def test_what_a_person_denies_is_told_to_an_async_agent(site: Site) -> None:
    """In the words of the person."""
    site.govern(rule("wire", "require_approval"))
    execution_id = site.begin("use", target="wire")
    approval = site.asked(execution_id)
    site.operator.ask("deny_approval", approval["id"], decided_by="bob", rationale="too much")
    [said] = site.end(execution_id)
    assert said == "wire not allowed. reason: [policy_denied] too much (HTTP 403)"
    assert site.log.count("wire") == 0


@shows("approvals")
def test_an_async_agent_whose_approval_expires(site: Site) -> None:
    """It is denied as soon as the time is over, without anybody who asks."""
    site.govern(rule("wait", "require_approval", approval_config={"timeout": "300ms"}))
    execution_id = site.begin("use", target="wait")
    [said] = site.end(execution_id)
    assert said == "wait not allowed. reason: [policy_denied] approval_timeout (HTTP 403)"
    payload = next(
        event.payload
        for event in site.client.events(execution_id)
        if event.type == "approval.expired"
    )
    expired = site.operator.ask("get_approval", payload["approval_id"])
    assert (expired["status"], expired["rationale"]) == ("expired", "timeout")
    assert expired["id"] not in [it["id"] for it in site.operator.ask("list_approvals")]


@shows("approvals")
def test_an_async_agent_that_asks_for_two_things_at_once(site: Site) -> None:
    """One blocks it, and the other is asked for when that was decided."""
    site.govern(rule("left", "require_approval"), rule("right", "require_approval"))
    execution_id = site.begin("use_together", targets=["left", "right"])
    for _ in range(2):
        site.operator.ask("grant_approval", site.asked(execution_id)["id"], decided_by="alice")
    left, right = site.end(execution_id)
    assert left in [line.token for line in site.log.of("left")]
    assert right in [line.token for line in site.log.of("right")]
    assert site.told(execution_id).count("execution.blocked") == 2


@shows("approvals", "token budgets", "model calls")
def test_a_budget_beyond_which_an_async_agent_asks(site: Site, provider: Provider) -> None:
    """A person lets the next call pass; those before it are replayed, not asked again."""
    models = budget(10)
    models["then"]["budget"]["on_exceed"] = "require_approval"
    site.govern(models)
    execution_id = site.begin("ask_or_fail", url=provider.url, questions=["one", "two"])
    approval = site.asked(execution_id)
    assert len(provider.requests) == 1
    site.operator.ask("grant_approval", approval["id"], decided_by="alice")
    assert site.end(execution_id) == ["no error"]
    assert len(provider.requests) == 2


@shows("decisions without a name")
def test_an_async_client_decides_without_a_name(site: Site) -> None:
    """Where anybody may decide."""
    site.govern(rule("sign", "require_approval"))
    execution_id = site.begin("use", target="sign")
    site.operator.ask("grant_approval", site.asked(execution_id)["id"])
    assert site.end(execution_id) == [f"x {line.token}" for line in site.log.of("sign")]


# -- cancelled


@shows("cancelled attempts")
def test_a_cancelled_async_agent_is_cut_short(site: Site) -> None:
    """At its next heartbeat."""
    execution_id = site.begin("linger")
    wait_until(lambda: site.log.of(f"began {execution_id}"), "the handler beginning")
    site.operator.ask("cancel", execution_id)
    wait_until(lambda: site.log.of(f"cut short {execution_id}"), "the handler ending")
    assert site.client.get(execution_id).status == "cancelled"
