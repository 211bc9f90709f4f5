"""Executions across the kinds of agents: subagents of either kind, and what clients start."""

from __future__ import annotations

import threading

import pytest
from support.waiting import wait_until

import rebuno_sync as rebuno

from .features import shows
from .operators import Refused
from .sites import AGENT, Site

pytestmark = pytest.mark.slow


# -- what their client starts of ours


@shows("executions of our agents")
def test_an_async_client_starts_an_agent_of_ours(site: Site) -> None:
    """And reads what it did."""

    @rebuno.tool
    def double(number: int) -> int:
        return 2 * number

    def handler(number: int) -> list[int]:
        return [double(number), double(number)]

    with site.ours("doubling", handler):
        created = site.operator.ask("create", "doubling", {"number": 4})
        assert site.end(created["id"]) == [8, 8]
    steps = site.operator.ask("list_steps", created["id"])
    assert sorted((it["target"], it["occurrence"], it["result"]) for it in steps) == [
        ("double", 0, 8),
        ("double", 1, 8),
    ]
    assert site.operator.ask("get", created["id"])["output"] == [8, 8]


@shows("executions of our agents", "approvals")
def test_an_async_client_decides_for_an_agent_of_ours(site: Site) -> None:
    """It grants what ours asks for."""

    @rebuno.tool(idempotency="at_most_once")
    def pay(cents: int) -> str:
        return f"paid {cents}"

    rule = "{id: ask, when: {target: pay}, then: {decision: require_approval}}"
    with site.ours("paying", lambda: pay(5)):
        site.client.set_policy("paying", f"rules: [{rule}]")
        created = site.operator.ask("create", "paying")

        approval = site.asked(created["id"])
        site.operator.ask("grant_approval", approval["id"], decided_by="ada")
        assert site.end(created["id"]) == "paid 5"


@shows("executions of our agents", "cancelled attempts")
def test_an_async_client_cancels_an_agent_of_ours(site: Site) -> None:
    """That sleeps, which blocks it: the sleep is over at once."""

    def handler() -> None:
        rebuno.sleep(3600)

    with site.ours("sleeping", handler):
        created = site.operator.ask("create", "sleeping")

        def status() -> str:
            return str(site.operator.ask("get", created["id"])["status"])

        wait_until(lambda: status() == "blocked", "the sleep beginning")
        site.operator.ask("cancel", created["id"])
        assert status() == "cancelled"
        [step] = site.operator.ask("list_steps", created["id"])
        assert step["status"] == "cancelled"


# -- subagents


@shows("subagents")
def test_an_async_parent_has_a_subagent_of_ours(site: Site) -> None:
    """Of two at once: it suspends and goes on with their outputs. What it runs again then asks
    neither of them again."""
    ran = []
    waits = threading.Event()

    def handler(words: str) -> dict[str, str]:
        ran.append(words)
        waits.wait(20)
        return {"shouted": words.upper()}

    with site.ours("shouting", handler):
        inputs = [{"words": "why"}, {"words": "how"}]
        parent = site.begin("delegate", to="shouting", inputs=inputs)
        wait_until(lambda: site.client.get(parent).status == "blocked", "the parent waiting")
        waits.set()
        assert site.end(parent) == [{"shouted": "WHY"}, {"shouted": "HOW"}]
    assert sorted(ran) == ["how", "why"]
    assert site.told(parent).count("execution.resumed") == 1
    children = site.children("shouting", parent)
    steps = site.client.list_steps(parent)
    assert sorted(it.spawned_by["step_id"] for it in children if it.spawned_by) == [
        step.step_id for step in steps
    ]
    for child in children:
        assert site.operator.ask("get", child.id)["spawned_by"] == child.spawned_by


@shows("subagents")
def test_an_async_parent_is_told_that_a_subagent_failed(site: Site) -> None:
    """Its tool fails, and with it the handler that lets the error pass."""

    def handler(words: str) -> None:
        raise ValueError(words)

    with site.ours("failing", handler):
        reason = site.fails("delegate", to="failing", inputs=[{"words": "no"}])
    assert reason == "tool_error: delegate: subagent_failed"


@shows("subagents")
def test_an_async_parent_is_cancelled_with_its_subagent(site: Site) -> None:
    """The child ends because of the parent."""

    def handler() -> None:
        rebuno.sleep(3600)

    with site.ours("child of one", handler):
        parent = site.begin("delegate", to="child of one", inputs=[{}])
        [child] = wait_until(lambda: site.children("child of one", parent), "the child")
        wait_until(lambda: site.client.get(parent).status == "blocked", "the parent waiting")
        site.operator.ask("cancel", parent)
        ended = site.operator.ask("get", child.id)
        assert (ended["status"], ended["failure_reason"]) == (
            "cancelled",
            "parent_agent_terminal",
        )


@shows("subagents", "sessions")
def test_subagents_of_an_async_parent_share_a_session(site: Site) -> None:
    """Each goes on from what the one before left."""
    outputs = [
        site.act("delegate", to=AGENT, inputs=[input], session="of children")
        for input in ({"act": "turn", "given": {"words": it}} for it in ("one", "two"))
    ]
    assert outputs == [[{"before": None}], [{"before": ["one"]}]]


@shows("subagents")
def test_an_async_client_spawns_for_a_step_that_runs(site: Site) -> None:
    """For one that does not, it is refused."""
    parent = site.begin("say", words="hello")
    site.end(parent)
    link = {"execution_id": parent, "step_id": "0" * 64}
    with pytest.raises(Refused) as refused:
        site.operator.ask("create", AGENT, {"act": "say"}, spawned_by=link)
    assert refused.value.name == "ConflictError"


@shows("being a subagent", "approvals")
def test_an_async_agent_is_a_subagent_of_ours(site: Site) -> None:
    """Our parent is parked while the children wait for a person, and goes on with their outputs;
    the async SDK need not know of it."""
    then = {"decision": "require_approval"}
    site.govern({"id": "ask", "when": {"target": "lend"}, "then": then})

    @rebuno.tool
    def consult(idempotency: str) -> list[str]:
        given = {"target": "lend", "idempotency": idempotency}
        return rebuno.subagent(  # type: ignore[no-any-return]
            AGENT, {"act": "use", "given": given}, client=site.client
        )

    def handler() -> list[list[str]]:
        kinds = "safe_to_retry", "at_most_once"
        return rebuno.parallel([(consult, kind) for kind in kinds])

    with site.ours("consulting", handler):
        parent = site.operator.ask("create", "consulting")["id"]
        wait_until(lambda: site.client.get(parent).status == "blocked", "the parent waiting")
        children = site.children(AGENT, parent)
        assert len(children) == 2
        for child in children:
            site.operator.ask("grant_approval", site.asked(child.id)["id"], decided_by="ada")
        lent = site.end(parent)
    assert sorted(it for [it] in lent) == sorted(f"x {line.token}" for line in site.log.of("lend"))


@shows("being a subagent")
def test_an_async_subagent_that_fails_our_parent(site: Site) -> None:
    """The tool raises; the child says why."""

    @rebuno.tool
    def consult() -> object:
        input = {"act": "no such act"}
        return rebuno.subagent(AGENT, input, client=site.client)

    def handler() -> str:
        try:
            consult()
        except rebuno.ToolError as error:
            return f"{error.reason}: {error}"
        return "no error"

    with site.ours("disappointed", handler):
        created = site.operator.ask("create", "disappointed")
        said = site.end(created["id"])
    assert said.startswith("subagent_failed: consult: subagent_failed: execution ")
    assert said.endswith(": agent_error: KeyError: 'no such act'")
    [child] = site.children(AGENT, created["id"])
    assert child.failure_reason == "agent_error: KeyError: 'no such act'"
