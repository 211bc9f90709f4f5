"""Agents and clients of the async SDKs: sessions, what executions leave to the next, forks,
resources."""

from __future__ import annotations

import json
import shutil
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

import rebuno_sync as rebuno

from .features import shows
from .operators import Refused
from .sites import AGENT, Site

pytestmark = pytest.mark.slow


def turn(words: str) -> dict[str, Any]:
    return {"act": "turn", "given": {"words": words}}


def end(site: Site, execution: dict[str, Any]) -> Any:
    return site.end(execution["id"])


def when(site: Site, execution: dict[str, Any], what: str) -> datetime:
    [event] = [
        event for event in site.client.events(execution["id"]) if event.type == f"execution.{what}"
    ]
    return event.occurred_at


# -- sessions and previous states


@shows("sessions", "previous states")
def test_a_session_of_an_async_client(site: Site) -> None:
    """Its executions run one after another, each goes on from what the one before left, and both
    clients read whose parent is whose."""
    words = ["one", "two", "three"]
    turns = [site.operator.ask("create", AGENT, turn(it), session="talk") for it in words]
    assert turns[0]["session"] == "talk"
    outputs = [end(site, it)["before"] for it in turns]
    assert outputs == [None, ["one"], ["one", "two"]]
    for before, after in pairwise(turns):
        read = site.operator.ask("get", after["id"])
        assert read["parent_execution_id"] == before["id"]
        assert site.client.get(after["id"]).parent_execution_id == before["id"]
        assert when(site, before, "completed") <= when(site, after, "started")


@shows("sessions")
def test_a_session_waits_for_its_turn(site: Site) -> None:
    """An execution is pending while the one before runs; it can be cancelled meanwhile."""
    first = site.begin("linger", of_session="queue")
    second, third = (
        site.operator.ask("create", AGENT, turn(it), session="queue") for it in ("no", "yes")
    )
    assert (second["status"], third["status"]) == ("pending", "pending")
    site.operator.ask("cancel", second["id"])
    site.operator.ask("cancel", first)
    assert end(site, third) == {"before": None}


@shows("sessions")
def test_a_session_that_has_no_name_is_refused(site: Site) -> None:
    """As the async client has it."""
    with pytest.raises(Refused) as refused:
        site.operator.ask("create", AGENT, turn("no"), session="  ")
    assert refused.value.name == "ValidationError"


@shows("previous states")
def test_an_async_agent_goes_on_from_a_parent(site: Site) -> None:
    """From that which its client names: one that has completed."""
    first = site.operator.ask("create", AGENT, turn("one"))
    end(site, first)
    for number in range(2):
        after = site.operator.ask("create", AGENT, turn("x"), parent_execution_id=first["id"])
        assert end(site, after) == {"before": ["one"]}, number
    running = site.begin("linger")
    with pytest.raises(Refused) as refused:
        site.operator.ask("create", AGENT, turn("x"), parent_execution_id=running)
    assert refused.value.name == "ConflictError"
    site.client.cancel(running)


@shows("previous states")
def test_what_an_async_agent_left_is_there_for_ours(site: Site) -> None:
    """And the other way round: an agent of either kind goes on in the session of the other."""

    def ours(act: str, given: dict[str, str]) -> rebuno.Result:
        before = rebuno.previous() or []
        return rebuno.Result({"before": before, "by": "ours"}, [*before, given["words"]])

    with site.ours(AGENT, ours):
        first = site.operator.ask("create", AGENT, turn("one"), session="both")
        assert end(site, first) == {"before": [], "by": "ours"}
    second = site.operator.ask("create", AGENT, turn("two"), session="both")
    assert end(site, second) == {"before": ["one"]}
    with site.ours(AGENT, ours):
        third = site.operator.ask("create", AGENT, turn("three"), session="both")
        assert end(site, third) == {"before": ["one", "two"], "by": "ours"}


# -- forks


def at(site: Site, execution_id: str, kind: str, number: int = 0) -> int:
    """The place of an event in the log."""
    found = [it.event_seq for it in site.client.events(execution_id) if it.type == kind]
    return found[number]


@shows("forks")
def test_an_async_client_forks_what_an_async_agent_did(site: Site) -> None:
    """What was settled by that event is replayed with its result; the rest is done anew."""
    execution_id = site.begin("use_freely", target="fork", times=2)
    before = site.end(execution_id)
    seq = at(site, execution_id, "step.succeeded")
    fork = site.operator.ask("fork", execution_id, at_seq=seq, session="branch")
    assert (fork["forked_from"], fork["fork_seq"]) == (execution_id, seq)
    assert fork["session"] == "branch"
    after = end(site, fork)
    assert after[0] == before[0]
    assert after[1] != before[1]
    assert site.log.count("fork") == 3
    read = site.operator.ask("get", fork["id"])
    assert (read["forked_from"], read["status"]) == (execution_id, "completed")
    with pytest.raises(Refused) as taken:
        site.operator.ask("fork", execution_id, at_seq=seq, session="branch")
    assert taken.value.name == "ConflictError"
    with pytest.raises(Refused) as beyond:
        site.operator.ask("fork", execution_id, at_seq=10_000)
    assert beyond.value.name == "ValidationError"


@shows("forks", "denied effects")
def test_a_fork_with_a_policy_of_its_own(site: Site) -> None:
    """It counts for what is new in the fork; a key without ``policies:write`` may not give one."""
    execution_id = site.begin("use", target="bold", times=2)
    before = site.end(execution_id)
    seq = at(site, execution_id, "step.succeeded")
    deny = {"id": "no", "when": {"target": "bold"}, "then": {"decision": "deny", "reason": "no"}}
    bundle = json.dumps({"default_action": "allow", "rules": [deny]})
    fork = site.operator.ask("fork", execution_id, at_seq=seq, policy_bundle=bundle)
    assert end(site, fork) == [
        before[0],
        "bold not allowed. reason: [policy_denied] no (HTTP 403)",
    ]
    key = site.client.create_key("forks", ["executions:write"])
    assert site.operator.ask("fork", execution_id, at_seq=seq, token=key.token)["id"]
    with pytest.raises(Refused) as refused:
        site.operator.ask("fork", execution_id, at_seq=seq, policy_bundle=bundle, token=key.token)
    assert refused.value.name == "ForbiddenError"


# -- resources


@shows("resources")
def test_a_resource_of_an_async_agent(site: Site) -> None:
    """It is made once, and captured when it is new and after each step that names it."""
    creations = site.log.count("create")
    execution_id = site.begin("draft", names=["a", "b"])
    assert site.end(execution_id) == ["a", "b"]
    assert site.log.count("create") == creations + 1
    told = [it for it in site.told(execution_id) if it.startswith("resource.")]
    assert told == ["resource.registered", "resource.bound", *["resource.checkpointed"] * 3]
    points = site.client.fork_points(execution_id)
    assert [(it.key, it.generation) for it in points.checkpoints] == [
        ("desk", 0),
        ("desk", 1),
        ("desk", 2),
    ]
    assert list(points.resources) == ["desk"]


@shows("resources")
def test_a_resource_that_is_captured_at_the_end(site: Site) -> None:
    """Where no step was due."""
    execution_id = site.begin("draft", names=["a", "b", "c"], every_steps=2)
    site.end(execution_id)
    points = site.client.fork_points(execution_id)
    assert [it.generation for it in points.checkpoints] == [0, 2, 3]


@shows("resources", "forks")
def test_a_fork_restores_an_async_agents_resource(site: Site) -> None:
    """As it was at that event: what came later is not there, until it is done again."""
    execution_id = site.begin("draft", names=["a", "b"])
    site.end(execution_id)
    [*_, first, second] = site.client.fork_points(execution_id).checkpoints
    created = site.log.count("create")
    fork = site.operator.ask("fork", execution_id, at_seq=first.covered_seq)
    assert fork["restoration"]["desk"]["checkpoint_ref"] == first.checkpoint_ref
    assert fork["restoration"]["desk"]["covered"] is True
    writes = site.log.count("write")
    assert end(site, fork) == ["a", "b"]
    assert site.log.count("write") == writes + 1
    assert [line.token for line in site.log.of("create")[created:]] == [first.checkpoint_ref]
    assert second.checkpoint_ref != first.checkpoint_ref


@shows("resources", "forks")
def test_a_fork_whose_capture_is_gone(site: Site) -> None:
    """Its driver says so, and that is the reason of the failure."""
    execution_id = site.begin("draft", names=["a"])
    site.end(execution_id)
    last = site.client.fork_points(execution_id).checkpoints[-1]
    shutil.rmtree(last.checkpoint_ref)
    fork = site.operator.ask("fork", execution_id, at_seq=last.covered_seq)
    with pytest.raises(rebuno.ExecutionFailed) as failed:
        end(site, fork)
    reason = f"agent_error: CheckpointUnavailable: {last.checkpoint_ref}"
    assert failed.value.reason == reason


@shows("resources", "sessions")
def test_a_session_keeps_an_async_agents_resource(site: Site) -> None:
    """The next execution finds the environment of the one before."""
    created, opened = site.log.count("create"), site.log.count("open")
    given = {"act": "draft", "given": {"names": ["a"]}}
    first = site.operator.ask("create", AGENT, given, session="desk")
    assert end(site, first) == ["a"]
    given = {"act": "draft", "given": {"names": ["b"]}}
    second = site.operator.ask("create", AGENT, given, session="desk")
    assert end(site, second) == ["a", "b"]
    assert (site.log.count("create"), site.log.count("open")) == (created + 1, opened + 1)
