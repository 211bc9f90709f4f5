"""Sessions and what one execution leaves to the next (protocol.md 9.2, 9.3)."""

from __future__ import annotations

import json
import uuid

import pytest

from rebuno_sync.types import Execution

from .deployments import AGENT, Deployment
from .moves import attempt, call, code_of, create, kinds, log, perform, rules, start
from .scenarios import scenario


def in_session(on: Deployment, name: str, **more: str) -> Execution:
    return on.operator.create(AGENT, session=name, **more)


def complete(on: Deployment, execution: Execution, output: object, state: object = None) -> None:
    """Its next attempt completes it."""
    left = None if state is None else json.dumps(state)
    on.agent.complete(attempt(on, execution.id), json.dumps(output), left)


@pytest.fixture
def name() -> str:
    """A session that nobody else uses."""
    return f"session {uuid.uuid4()}"


@scenario("sessions")
def test_a_session_runs_one_at_a_time(on: Deployment, name: str) -> None:
    """The first begins at once, the others wait for it, in the order of their creation."""
    first, second, third = (in_session(on, name) for _ in range(3))
    assert [it.status for it in (first, second, third)] == ["running", "pending", "pending"]
    assert on.lease(second.id) is None
    complete(on, first, 1)
    assert on.operator.get(second.id).status == "running"
    assert on.operator.get(third.id).status == "pending"
    complete(on, second, 2)
    complete(on, third, 3)
    assert on.operator.get(third.id).status == "completed"


@scenario("sessions")
def test_a_session_says_so_in_the_log(on: Deployment, name: str) -> None:
    """One that waits has only been created."""
    first, second = in_session(on, name), in_session(on, name)
    assert kinds(on, second.id) == ["execution.created"]
    complete(on, first, None)
    [created, started, queued, *_] = log(on, second.id)
    assert created[1]["session"] == started[1]["session"] == name
    assert started[1]["parent_execution_id"] == first.id
    assert (started[0], queued[0]) == ("execution.started", "dispatch.queued")


@scenario("sessions")
def test_however_one_ends_the_next_begins(on: Deployment, name: str) -> None:
    """Cancelled while it waits, failed, cancelled while it runs."""
    first, gone, second, third = (in_session(on, name) for _ in range(4))
    on.operator.cancel(gone.id)
    on.agent.fail(attempt(on, first.id), "it went wrong")
    assert on.operator.get(second.id).status == "running"
    on.operator.cancel(second.id)
    assert on.operator.get(third.id).status == "running"
    assert on.operator.get(gone.id).status == "cancelled"


@scenario("sessions")
def test_an_execution_that_waits_keeps_its_session(on: Deployment, name: str) -> None:
    """While it waits for a person, the next one does not begin."""
    rules(on, "charge", "{decision: require_approval}")
    first, second = in_session(on, name), in_session(on, name)
    approval_id = on.agent.submit(attempt(on, first.id), call("charge")).approval_id
    assert on.operator.get(first.id).status == "blocked"
    assert on.operator.get(second.id).status == "pending"
    on.operator.deny_approval(approval_id, "alice")
    complete(on, first, None)
    assert on.operator.get(second.id).status == "running"


@scenario("sessions")
def test_sessions_do_not_wait_for_each_other(on: Deployment, name: str) -> None:
    """Nor does one without a session."""
    in_session(on, name)
    assert in_session(on, f"another {name}").status == "running"
    assert create(on).status == "running"


@scenario("sessions")
def test_executions_are_listed_by_session(on: Deployment, name: str) -> None:
    """The newest first."""
    both = [in_session(on, name).id for _ in range(2)]
    create(on)
    page = on.operator.list(session=name)
    assert [it.id for it in page.executions] == both[::-1]
    assert {it.session for it in page.executions} == {name}


@scenario("sessions")
@pytest.mark.parametrize("bad", [" ", "x" * 257, "a\0b"])
def test_what_names_no_session_is_refused(on: Deployment, bad: str) -> None:
    """1 to 256 bytes, not blank, without NUL."""
    assert code_of(lambda: in_session(on, bad)) == "validation_error"


@scenario("sessions")
def test_a_key_finds_the_execution_that_waits(on: Deployment, name: str) -> None:
    """The same one, wherever it stands."""
    in_session(on, name)
    key = str(uuid.uuid4())
    waiting = in_session(on, name, idempotency_key=key)
    assert in_session(on, name, idempotency_key=key).id == waiting.id
    assert waiting.status == "pending"


@scenario("sessions")
def test_a_limit_counts_for_the_session(on: Deployment, name: str) -> None:
    """The calls of all its executions; another session, or none, has a bucket of its own."""
    rules(on, "t", "{decision: allow, rate_limit: {max_calls: 1, window: 1h, per_what: session}}")
    first, second = in_session(on, name), in_session(on, name)
    lease = attempt(on, first.id)
    assert on.agent.submit(lease, call("t")).decision == "proceed"
    on.agent.complete(lease, "null")
    assert on.agent.submit(attempt(on, second.id), call("t")).decision == "rate_limited"
    for _ in range(2):
        assert on.agent.submit(start(on), call("t")).decision == "proceed"


@scenario("sessions")
def test_a_budget_counts_for_the_session(on: Deployment, name: str) -> None:
    """What the turns before have used up."""
    rules(on, "model", "{decision: allow, budget: {max_tokens: 10, scope: session}}")
    first, second = in_session(on, name), in_session(on, name)
    lease = attempt(on, first.id)
    used = {"usage": {"input_tokens": 6, "output_tokens": 6}}
    perform(on, lease, call("model", kind="llm_call"), used)
    on.agent.complete(lease, "null")
    decision = on.agent.submit(attempt(on, second.id), call("model", kind="llm_call"))
    assert (decision.decision, decision.reason) == ("denied", "execution_token_budget_exceeded")
    alone = start(on)
    perform(on, alone, call("model", kind="llm_call"), used)
    decision = on.agent.submit(alone, call("model", {"n": 2}, kind="llm_call"))
    assert decision.decision == "denied"


@scenario("previous")
def test_a_session_goes_on_from_the_last_that_completed(on: Deployment, name: str) -> None:
    """One that failed leaves nothing; without a state its output is left."""
    first, failed, third, fourth = (in_session(on, name) for _ in range(4))
    assert on.agent.previous(first.id) is None
    complete(on, first, "an answer", {"turn": 1})
    on.agent.fail(attempt(on, failed.id), "it went wrong")
    assert on.agent.previous(third.id) == {"turn": 1}
    assert on.operator.previous(third.id) == {"turn": 1}
    assert on.operator.get(third.id).parent_execution_id == first.id
    complete(on, third, "another answer")
    assert on.agent.previous(fourth.id) == "another answer"


@scenario("sessions")
def test_agents_share_a_session(on: Deployment, name: str) -> None:
    """One at a time, whoever's it is (protocol.md 9.2)."""
    on.register("other")
    mine = in_session(on, name)
    theirs = on.operator.create("other", session=name)
    assert theirs.status == "pending"
    complete(on, mine, None)
    assert on.operator.get(theirs.id).status == "running"


@scenario("previous")
def test_a_session_hands_over_within_an_agent(on: Deployment, name: str) -> None:
    """What another agent left in the same session is not for this one."""
    on.register("other")
    complete(on, in_session(on, name), None, "mine")
    theirs = on.operator.create("other", session=name)
    assert theirs.parent_execution_id is None
    on.operator.cancel(theirs.id)
    assert on.agent.previous(in_session(on, name).id) == "mine"


def test_b39_a_parent_has_completed_and_is_of_the_same_agent(on: Deployment) -> None:
    """Whoever still runs, failed, or is of another agent, has no state to go on from."""
    running = start(on)

    def of(parent: str) -> str:
        return code_of(lambda: on.operator.create(AGENT, parent_execution_id=parent))

    assert of(running.execution_id) == "conflict"
    on.agent.fail(running, "it went wrong")
    assert of(running.execution_id) == "conflict"
    assert of(str(uuid.uuid4())) == "not_found"
    on.register("other")
    completed = create(on)
    complete(on, completed, 1)
    refused = code_of(lambda: on.operator.create("other", parent_execution_id=completed.id))
    assert refused == "conflict"


def test_b39_a_parent_begins_a_new_session_only(on: Deployment, name: str) -> None:
    """An existing one goes on from its own last execution."""
    parent = create(on)
    complete(on, parent, "left")
    in_session(on, f"taken {name}")
    taken = code_of(lambda: in_session(on, f"taken {name}", parent_execution_id=parent.id))
    assert taken == "conflict"
    fresh = in_session(on, name, parent_execution_id=parent.id)
    assert (fresh.status, fresh.parent_execution_id) == ("running", parent.id)
    assert on.agent.previous(fresh.id) == "left"


def test_b39_a_parent_without_a_session(on: Deployment) -> None:
    """It runs at once."""
    parent = create(on)
    complete(on, parent, "left", "a state")
    child = on.operator.create(AGENT, parent_execution_id=parent.id)
    assert (child.status, child.parent_execution_id) == ("running", parent.id)
    assert log(on, child.id)[1][1]["parent_execution_id"] == parent.id
    assert on.agent.previous(child.id) == "a state"


@scenario("previous", "forks")
def test_a_fork_goes_on_from_where_its_source_did(on: Deployment, name: str) -> None:
    """Also in a session of its own: it has its source's parent (protocol.md 9.2, 9.5)."""
    first, second = in_session(on, name), in_session(on, name)
    complete(on, first, None, {"turn": 1})
    for session in ("", f"fork of {name}"):
        fork = on.operator.fork(second.id, 1, session)
        assert (fork.status, fork.parent_execution_id) == ("running", first.id)
        assert on.agent.previous(fork.id) == {"turn": 1}


@scenario("previous")
def test_a_state_of_null_is_none(on: Deployment) -> None:
    """The output is left then."""
    parent = create(on)
    on.agent.complete(attempt(on, parent.id), '"an output"', "null")
    child = on.operator.create(AGENT, parent_execution_id=parent.id)
    assert on.agent.previous(child.id) == "an output"


@scenario("previous")
def test_nobody_is_before_the_first(on: Deployment) -> None:
    """Nothing was left to it; an execution that does not exist is not found."""
    assert on.agent.previous(create(on).id) is None
    assert code_of(lambda: on.agent.previous(str(uuid.uuid4()))) == "not_found"
