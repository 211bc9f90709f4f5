"""Executions that stand for a step of another, and parents that wait for them (protocol.md 9.7)."""

from __future__ import annotations

import json
import uuid

import pytest

from rebuno_sync.types import Execution, LeaseKey, Wake

from .deployments import AGENT, Deployment
from .moves import attempt, call, code_of, kinds, log, once, perform, rules, start
from .scenarios import scenario


def spawn(on: Deployment, lease: LeaseKey, target: str = "ask") -> tuple[str, Execution]:
    """A step of the attempt, and the subagent that stands for it."""
    step_id = on.agent.submit(lease, call(target)).step_id
    return step_id, spawned(on, lease.execution_id, step_id)


def spawned(on: Deployment, execution_id: str, step_id: str, **more: str) -> Execution:
    spawned_by = {"execution_id": execution_id, "step_id": step_id}
    return on.operator.create(AGENT, spawned_by=spawned_by, **more)


def complete(on: Deployment, execution_id: str, output: object = None) -> None:
    on.agent.complete(attempt(on, execution_id), json.dumps(output))


@scenario("subagents")
def test_a_suspended_parent_goes_on_when_its_subagent_ends(on: Deployment) -> None:
    """The step's result is the subagent's output; another attempt is told so."""
    lease = start(on)
    step_id, child = spawn(on, lease)
    assert child.spawned_by == {"execution_id": lease.execution_id, "step_id": step_id}
    assert on.agent.suspend(lease)
    assert on.operator.get(lease.execution_id).status == "blocked"
    assert log(on, lease.execution_id)[-1][1]["reason"] == "awaiting_steps"
    complete(on, child.id, {"found": 3})
    again = attempt(on, lease.execution_id)
    decision = on.agent.submit(again, call("ask"))
    assert (decision.decision, decision.step_id) == ("replay", step_id)
    assert decision.result == {"found": 3}
    told = kinds(on, lease.execution_id)
    at = told.index("execution.blocked")
    assert told[at + 1 : at + 4] == ["step.succeeded", "execution.resumed", "dispatch.queued"]


@scenario("subagents")
def test_a_parent_that_was_not_suspended_runs_on(on: Deployment) -> None:
    """The step is settled all the same; its own outcome is answered by what is recorded."""
    lease = start(on)
    step_id, child = spawn(on, lease)
    complete(on, child.id, 7)
    assert not on.agent.suspend(lease)
    assert on.agent.get_step(lease.execution_id, step_id).result == 7
    answer = on.agent.complete_step(lease, step_id, "8")
    assert (answer.decision, answer.result) == ("replay", 7)
    on.agent.complete(lease, "null")
    assert "execution.blocked" not in kinds(on, lease.execution_id)


@scenario("subagents")
def test_without_an_output_the_result_is_null(on: Deployment) -> None:
    """As of a tool that returns nothing."""
    lease = start(on)
    step_id, child = spawn(on, lease)
    complete(on, child.id)
    step = on.agent.get_step(lease.execution_id, step_id)
    assert (step.status, step.result) == ("succeeded", None)


@scenario("subagents")
@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_a_subagent_that_did_not_complete_fails_the_step(on: Deployment, end: str) -> None:
    """The error says which execution it was and why."""
    lease = start(on)
    step_id, child = spawn(on, lease)
    assert on.agent.suspend(lease)
    if end == "failed":
        on.agent.fail(attempt(on, child.id), "it went wrong")
    else:
        on.operator.cancel(child.id)
    step = on.agent.get_step(lease.execution_id, step_id)
    reason = "it went wrong" if end == "failed" else "client_cancelled"
    assert step.status == "failed"
    assert step.error == {
        "reason": f"subagent_{end}",
        "execution_id": child.id,
        "failure_reason": reason,
    }
    assert on.operator.get(lease.execution_id).status == "running"


@scenario("subagents")
def test_a_parent_waits_for_all_of_its_subagents(on: Deployment) -> None:
    """It goes on with the last, not before."""
    lease = start(on)
    children = [spawn(on, lease, target)[1] for target in ("one", "two")]
    assert on.agent.suspend(lease)
    complete(on, children[1].id)
    assert on.operator.get(lease.execution_id).status == "blocked"
    complete(on, children[0].id)
    assert on.operator.get(lease.execution_id).status == "running"
    assert kinds(on, lease.execution_id).count("execution.resumed") == 1


@scenario("subagents")
@pytest.mark.parametrize("first", ["the person", "the subagent"])
def test_a_parent_waits_for_its_subagent_and_for_a_person(on: Deployment, first: str) -> None:
    """Granting while the subagent runs leaves it blocked, and the other way round."""
    rules(on, "pay", "{decision: require_approval}")
    lease = start(on)
    _, child = spawn(on, lease)
    approval_id = on.agent.submit(lease, call("pay")).approval_id
    both = [
        lambda: on.operator.grant_approval(approval_id, "alice"),
        lambda: complete(on, child.id),
    ]
    for settle in both if first == "the person" else both[::-1]:
        assert on.operator.get(lease.execution_id).status == "blocked"
        settle()
    assert on.operator.get(lease.execution_id).status == "running"


@scenario("subagents")
def test_a_step_has_one_subagent(on: Deployment) -> None:
    """Created again, it is the same one, also when it has ended."""
    lease = start(on)
    step_id, child = spawn(on, lease)
    assert spawned(on, lease.execution_id, step_id).id == child.id
    complete(on, child.id)
    assert spawned(on, lease.execution_id, step_id).id == child.id


@scenario("subagents")
def test_only_an_executing_step_of_a_live_execution_is_stood_for(on: Deployment) -> None:
    """Anything else is refused, each in its way."""
    lease = start(on)
    done = perform(on, lease, call("done")).step_id
    assert code_of(lambda: spawned(on, lease.execution_id, done)) == "conflict"
    assert code_of(lambda: spawned(on, lease.execution_id, "0" * 64)) == "validation_error"
    assert code_of(lambda: spawned(on, str(uuid.uuid4()), "0" * 64)) == "not_found"
    open_step = on.agent.submit(lease, call("open")).step_id
    on.operator.cancel(lease.execution_id)
    assert code_of(lambda: spawned(on, lease.execution_id, open_step)) == "conflict"


@scenario("subagents")
def test_a_subagent_says_whose_it_is(on: Deployment) -> None:
    """In its first event; the step is its key unless another one is given (protocol.md 9.1)."""
    lease = start(on)
    step_id, child = spawn(on, lease)
    assert child.idempotency_key == step_id
    spawned_by = {"execution_id": lease.execution_id, "step_id": step_id}
    assert log(on, child.id)[0][1]["spawned_by"] == spawned_by


@scenario("subagents", "sessions")
def test_a_subagent_is_not_of_its_parents_session(on: Deployment) -> None:
    """It would wait for its parent to end, and the parent for it. Nor is one further down."""
    name = f"session {uuid.uuid4()}"
    lease = attempt(on, on.operator.create(AGENT, session=name).id)
    step_id = on.agent.submit(lease, call("ask")).step_id
    refused = code_of(lambda: spawned(on, lease.execution_id, step_id, session=name))
    assert refused == "validation_error"
    child = attempt(on, spawned(on, lease.execution_id, step_id).id)
    below = on.agent.submit(child, call("ask")).step_id
    refused = code_of(lambda: spawned(on, child.execution_id, below, session=name))
    assert refused == "validation_error"
    assert spawned(on, child.execution_id, below, session=f"other {name}").status == "running"


@scenario("subagents")
def test_nothing_is_suspended_where_nothing_waits(on: Deployment) -> None:
    """An open step alone is not waited for; the lease stays."""
    lease = start(on)
    on.agent.submit(lease, call("open"))
    assert not on.agent.suspend(lease)
    perform(on, lease, call("more"))
    assert on.operator.get(lease.execution_id).status == "running"


@scenario("subagents")
def test_the_lease_of_a_suspended_execution_is_gone(on: Deployment) -> None:
    """It writes nothing more, and cannot suspend again; what has ended says so."""
    lease = start(on)
    step_id, child = spawn(on, lease)
    assert on.agent.suspend(lease)
    assert code_of(lambda: on.agent.suspend(lease)) == "lease_superseded"
    assert code_of(lambda: on.agent.submit(lease, call("more"))) == "lease_superseded"
    on.operator.cancel(lease.execution_id)
    assert code_of(lambda: on.agent.suspend(lease)) == "execution_terminal"
    assert on.operator.get(child.id).status == "cancelled"
    assert on.agent.get_step(lease.execution_id, step_id).status == "cancelled"


@scenario("subagents")
def test_a_step_that_must_not_run_twice_is_settled_by_its_subagent(on: Deployment) -> None:
    """A suspended attempt has not been cut down: nothing is indeterminate."""
    lease = start(on)
    step_id = on.agent.submit(lease, once("ask")).step_id
    child = spawned(on, lease.execution_id, step_id)
    assert on.agent.suspend(lease)
    complete(on, child.id, "an answer")
    decision = on.agent.submit(attempt(on, lease.execution_id), once("ask"))
    assert (decision.decision, decision.result) == ("replay", "an answer")


@pytest.mark.parametrize("end", ["cancelled", "completed", "failed"])
def test_b40_what_an_execution_spawned_ends_with_it(on: Deployment, end: str) -> None:
    """Child and grandchild, however it ends."""
    lease = start(on)
    _, child = spawn(on, lease)
    below = attempt(on, child.id)
    _, grandchild = spawn(on, below)
    assert on.agent.suspend(below)
    if end == "cancelled":
        on.operator.cancel(lease.execution_id)
    elif end == "completed":
        on.agent.complete(lease, "null")
    else:
        on.agent.fail(lease, "it went wrong")
    for descendant in (child, grandchild):
        found = on.operator.get(descendant.id)
        assert (found.status, found.failure_reason) == ("cancelled", "parent_agent_terminal")
    assert kinds(on, lease.execution_id)[-1 if end != "cancelled" else -2] == f"execution.{end}"


@scenario("subagents", "sessions")
def test_a_subagent_that_waits_for_its_session_ends_too(on: Deployment) -> None:
    """It never began; those of other parents in the session go on."""
    name = f"session {uuid.uuid4()}"
    holder = on.operator.create(AGENT, session=name)
    lease = start(on)
    step_id = on.agent.submit(lease, call("ask")).step_id
    child = spawned(on, lease.execution_id, step_id, session=name)
    assert child.status == "pending"
    on.agent.complete(lease, "null")
    assert on.operator.get(child.id).failure_reason == "parent_agent_terminal"
    assert on.operator.get(holder.id).status == "running"


@scenario("subagents", "wake", "on demand")
def test_an_outcome_that_comes_after_the_suspension_stands(on: Deployment) -> None:
    """Of the attempt that suspended: the execution goes on all the same, when the subagent has
    ended or the sleep is over."""
    lease = start(on)
    step_id, child = spawn(on, lease)
    assert on.agent.suspend(lease)
    assert on.agent.complete_step(lease, step_id, "1").decision == "recorded"
    complete(on, child.id, 2)
    again = attempt(on, lease.execution_id)
    assert on.agent.submit(again, call("ask")).result == 1
    step_id = on.agent.submit(again, call("sleep", kind="local")).step_id
    assert on.agent.suspend(again, Wake(step_id, 60.0))
    assert on.agent.complete_step(again, step_id, "null").decision == "recorded"
    on.pass_time(1)
    assert attempt(on, lease.execution_id).attempt == 1


# -- sleeps


def asleep(on: Deployment, leases: float) -> tuple[LeaseKey, str]:
    """An execution that sleeps for so many lengths of a lease (120 s), and its step."""
    lease = start(on)
    step_id = on.agent.submit(lease, call("sleep", {"seconds": 1}, kind="local")).step_id
    assert on.agent.suspend(lease, Wake(step_id, 120.0 * leases))
    return lease, step_id


@scenario("wake", "on demand")
def test_a_parked_sleep_ends_by_itself(on: Deployment) -> None:
    """Then, and not before; the step succeeds, and another attempt goes on."""
    lease, step_id = asleep(on, 5)
    payload = log(on, lease.execution_id)[-1][1]
    assert (payload["status"], payload["reason"]) == ("blocked", "sleeping")
    assert "wake_at" in payload
    on.pass_time(4.9)
    assert on.lease(lease.execution_id) is None
    assert on.operator.get(lease.execution_id).status == "blocked"
    on.pass_time(0.2)
    again = attempt(on, lease.execution_id)
    assert on.agent.get_step(lease.execution_id, step_id).status == "succeeded"
    decision = on.agent.submit(again, call("sleep", {"seconds": 1}, kind="local"))
    assert (decision.decision, decision.result) == ("replay", None)


@scenario("wake", "on demand")
def test_a_sleeping_execution_can_be_cancelled(on: Deployment) -> None:
    """Nothing wakes it afterwards."""
    lease, step_id = asleep(on, 1)
    on.operator.cancel(lease.execution_id)
    on.pass_time(2)
    assert on.lease(lease.execution_id) is None
    assert on.operator.get(lease.execution_id).status == "cancelled"
    assert on.agent.get_step(lease.execution_id, step_id).status == "cancelled"


@scenario("wake", "on demand")
def test_a_sleeper_that_waits_for_a_subagent_too(on: Deployment) -> None:
    """Its sleep ends, and it goes on when the subagent has ended; or that first, and it goes on to
    sleep out what is left."""
    lease = start(on)
    _, child = spawn(on, lease)
    step_id = on.agent.submit(lease, call("sleep", kind="local")).step_id
    assert on.agent.suspend(lease, Wake(step_id, 60.0))
    on.pass_time(1)
    assert on.agent.get_step(lease.execution_id, step_id).status == "succeeded"
    assert on.operator.get(lease.execution_id).status == "blocked"
    complete(on, child.id)
    again = attempt(on, lease.execution_id)
    _, child = spawn(on, again, "another")
    step_id = on.agent.submit(again, call("sleep again", kind="local")).step_id
    assert on.agent.suspend(again, Wake(step_id, 60.0))
    complete(on, child.id)
    last = attempt(on, lease.execution_id)
    assert on.agent.get_step(lease.execution_id, step_id).status == "executing"
    assert on.agent.submit(last, call("another")).decision == "replay"
    on.pass_time(0.6)
    assert on.agent.get_step(lease.execution_id, step_id).status == "succeeded"
    on.agent.complete(last, "null")


@scenario("wake", "on demand")
def test_a_subagent_that_has_just_ended_is_not_slept_over(on: Deployment) -> None:
    """Nothing would resume the execution before its sleep is over, so it is not parked."""
    lease = start(on)
    asked, child = spawn(on, lease)
    step_id = on.agent.submit(lease, call("sleep", kind="local")).step_id
    complete(on, child.id)
    assert not on.agent.suspend(lease, Wake(step_id, 3600.0, (asked,)))
    assert on.operator.get(lease.execution_id).status == "running"
    other, _ = spawn(on, lease, "another")
    assert on.agent.suspend(lease, Wake(step_id, 3600.0, (other,)))


@scenario("wake")
def test_a_sleep_of_nothing_parks_nothing(on: Deployment) -> None:
    """The lease stays, also for a step that has ended; one that is none is not found."""
    lease = start(on)
    step_id = on.agent.submit(lease, call("sleep", kind="local")).step_id
    assert not on.agent.suspend(lease, Wake(step_id, 0))
    on.agent.complete_step(lease, step_id, "null")
    assert not on.agent.suspend(lease, Wake(step_id, 60))
    assert code_of(lambda: on.agent.suspend(lease, Wake("0" * 64, 60))) == "not_found"
    on.agent.complete(lease, "null")
