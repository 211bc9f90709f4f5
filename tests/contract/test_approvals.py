"""Approvals: a person decides whether a step may run (protocol.md 12)."""

from __future__ import annotations

import pytest

from rebuno_sync.types import LeaseKey, Proposal

from .deployments import AGENT, Changeable, Deployment
from .moves import (
    asks,
    attempt,
    call,
    code_of,
    kinds,
    log,
    next_attempt,
    once,
    perform,
    rules,
    start,
)
from .scenarios import scenario


def status(on: Deployment, lease: LeaseKey) -> str:
    return str(on.operator.get(lease.execution_id).status)


def test_b09_asking_for_an_approval_blocks_the_execution(on: Deployment) -> None:
    """Its lease is taken, it is not delivered again, and the approval waits for somebody."""
    lease, approval = asks(on, call("charge", {"cents": 5}))
    assert (status(on, lease), approval.status) == ("blocked", "pending")
    assert approval.execution_id == lease.execution_id
    assert approval.timeout_at > approval.created_at
    assert [it.id for it in on.operator.list_approvals()] == [approval.id]
    on.expire(lease)
    assert on.lease(lease.execution_id) is None
    assert kinds(on, lease.execution_id)[-4:] == [
        "step.proposed",
        "step.awaiting_approval",
        "approval.requested",
        "execution.blocked",
    ]
    (step,) = on.operator.list_steps(lease.execution_id)
    assert (step.step_id, step.status) == (approval.step_id, "awaiting_approval")


@scenario("telling approvals")
def test_an_approval_tells_what_is_to_be_decided(on: Deployment) -> None:
    """Whoever decides need not be allowed to read executions: it has the agent, the call and its
    arguments, long ones too.
    """
    args = {"cents": 5, "why": "because " * 1000}
    lease, approval = asks(on, call("charge", args))
    [listed] = on.operator.list_approvals()
    for told in (approval, listed):
        assert (told.agent_id, told.kind, told.target) == (AGENT, "tool_call", "charge")
        assert told.args == args
    on.operator.grant_approval(approval.id, "alice")
    assert on.operator.get_approval(approval.id).args == args
    assert status(on, lease) == "running"


@scenario("on demand")
def test_b09_a_blocked_execution_is_left_alone(on: Deployment) -> None:
    """However many lengths of a lease pass, nobody gets an attempt of it."""
    lease, approval = asks(on, call("charge"), terms="{timeout: 24h}")
    for _ in range(12):
        on.pass_time(50)
        assert on.lease(lease.execution_id) is None
    assert status(on, lease) == "blocked"
    assert on.operator.get_approval(approval.id) == approval


def test_b10_a_step_that_still_waits_blocks_again(on: Changeable) -> None:
    """On the same approval; nothing new is asked."""
    lease, approval = asks(on, once("charge"))
    on.redeliver(lease.execution_id)
    later = attempt(on, lease.execution_id)
    again = on.agent.submit(later, once("charge"))
    assert (again.decision, again.step_id) == ("blocked", approval.step_id)
    assert again.approval_id == approval.id
    assert on.operator.list_approvals() == [approval]


def test_b10_a_new_step_of_a_blocked_execution_is_none(on: Changeable) -> None:
    """What was recorded still replays; what is new is neither recorded nor judged."""
    rules(on, "charge", "{decision: require_approval}")
    lease = start(on)
    perform(on, lease, call("search"), 1)
    on.agent.submit(lease, once("charge"))
    on.redeliver(lease.execution_id)
    later = attempt(on, lease.execution_id)
    assert on.agent.submit(later, call("search")).result == 1
    for _ in range(2):
        new = on.agent.submit(later, call("new"))
        assert (new.decision, new.step_id) == ("execution_blocked", "")
    assert len(on.operator.list_steps(lease.execution_id)) == 2


@pytest.mark.parametrize("proposal", [call("charge"), once("charge")], ids=["safe", "once"])
def test_b11_a_granted_step_runs(on: Deployment, proposal: Proposal) -> None:
    """The execution goes on under a new dispatch, and the same call proceeds."""
    lease, approval = asks(on, proposal)
    on.operator.grant_approval(approval.id, "alice", "fine")
    assert status(on, lease) == "running"
    later = attempt(on, lease.execution_id)
    assert (later.dispatch_id != lease.dispatch_id, later.attempt) == (True, 1)
    decision = on.agent.submit(later, proposal)
    assert (decision.decision, decision.step_id) == ("proceed", approval.step_id)
    on.agent.complete_step(later, decision.step_id, "1")
    on.agent.complete(later, "null")
    told = [kind for kind in kinds(on, lease.execution_id) if not kind.startswith("dispatch.")]
    assert told[-6:] == [
        "approval.granted",
        "step.allowed",
        "execution.resumed",
        "step.executing",
        "step.succeeded",
        "execution.completed",
    ]
    _, allowed = next(it for it in log(on, lease.execution_id) if it[0] == "step.allowed")
    assert allowed == {
        "step_id": approval.step_id,
        "step_type": "tool_call",
        "target": "charge",
    }
    decided = on.operator.get_approval(approval.id)
    assert (decided.status, decided.decided_by, decided.rationale) == ("granted", "alice", "fine")
    assert decided.decided_at is not None
    assert decided.decided_at >= decided.created_at


def test_b12_a_granted_step_that_was_cut_down_does_not_run_again(on: Deployment) -> None:
    """At most once means once, approvals included."""
    lease, approval = asks(on, once("charge"))
    on.operator.grant_approval(approval.id, "alice")
    later = attempt(on, lease.execution_id)
    assert on.agent.submit(later, once("charge")).decision == "proceed"
    decision = on.agent.submit(next_attempt(on, later), once("charge"))
    assert (decision.decision, decision.error["reason"]) == ("replay", "indeterminate")


def test_b13_a_denied_step_is_denied_to_whoever_calls_it(on: Deployment) -> None:
    """The execution goes on all the same, and nobody is asked any more."""
    lease, approval = asks(on, call("charge"))
    on.operator.deny_approval(approval.id, "alice")
    assert status(on, lease) == "running"
    assert on.operator.list_approvals() == []
    decision = on.agent.submit(attempt(on, lease.execution_id), call("charge"))
    assert (decision.decision, decision.reason) == ("denied", "approval_denied")
    assert code_of(lambda: on.operator.deny_approval(approval.id, "alice")) == "conflict"
    assert code_of(lambda: on.operator.grant_approval(approval.id, "alice")) == "conflict"
    settled = [kind for kind in kinds(on, lease.execution_id) if kind == "step.denied"]
    assert settled == ["step.denied"]


def test_b14_a_denial_tells_its_rationale(on: Deployment) -> None:
    """In the words of whoever denied."""
    lease, approval = asks(on, call("charge"))
    on.operator.deny_approval(approval.id, "alice", "too much money")
    decision = on.agent.submit(attempt(on, lease.execution_id), call("charge"))
    assert (decision.decision, decision.reason) == ("denied", "too much money")


def test_b15_an_approval_that_nobody_decides_is_denied_in_time(on: Deployment) -> None:
    """At its timeout, not at a sweep some minutes later; the execution goes on."""
    lease, approval = asks(on, call("charge"), terms="{timeout: 30s}")
    on.pass_time(0.24)
    assert status(on, lease) == "blocked"
    on.pass_time(0.02)
    assert status(on, lease) == "running"
    expired = on.operator.get_approval(approval.id)
    assert (expired.status, expired.rationale) == ("expired", "timeout")
    assert code_of(lambda: on.operator.grant_approval(approval.id, "alice")) == "conflict"
    decision = on.agent.submit(attempt(on, lease.execution_id), call("charge"))
    assert (decision.decision, decision.reason) == ("denied", "approval_timeout")
    told = [kind for kind in kinds(on, lease.execution_id) if not kind.startswith("dispatch.")]
    assert told[-3:] == ["approval.expired", "step.denied", "execution.resumed"]
    _, payload = next(it for it in log(on, lease.execution_id) if it[0] == "approval.expired")
    assert (payload["status"], payload["rationale"]) == ("expired", "timeout")


@pytest.mark.parametrize("stranger", ["carol", "Alice", "alice "])
def test_b16_only_approvers_decide(on: Deployment, stranger: str) -> None:
    """Names are exact; a refused attempt leaves no trace."""
    lease, approval = asks(on, call("charge"), terms="{approvers: [alice, bob]}")
    assert approval.approvers == ["alice", "bob"]
    before = kinds(on, lease.execution_id)
    assert code_of(lambda: on.operator.grant_approval(approval.id, stranger)) == "forbidden"
    assert code_of(lambda: on.operator.deny_approval(approval.id, stranger)) == "forbidden"
    assert on.operator.get_approval(approval.id) == approval
    assert kinds(on, lease.execution_id) == before
    on.operator.grant_approval(approval.id, "bob")
    assert on.operator.get_approval(approval.id).decided_by == "bob"


def test_b16_an_empty_list_of_approvers_is_none(on: Deployment) -> None:
    """Anyone decides (protocol.md 12)."""
    _, approval = asks(on, call("charge"), terms="{approvers: []}")
    assert approval.approvers is None
    on.operator.deny_approval(approval.id, "anyone")


def test_a_stranger_is_told_that_it_was_decided(on: Deployment) -> None:
    """Whether it was decided is looked at before who asks (protocol.md 12)."""
    _, approval = asks(on, call("charge"), terms="{approvers: [alice]}")
    on.operator.grant_approval(approval.id, "alice")
    assert code_of(lambda: on.operator.grant_approval(approval.id, "carol")) == "conflict"
    assert code_of(lambda: on.operator.deny_approval(approval.id, "carol")) == "conflict"


@scenario("on demand")
@pytest.mark.parametrize(("timeout", "lease_share"), [("0s", 7.5), ("-5m", 0), ("0.5h", 15)])
def test_how_long_an_approval_is_waited_for(
    on: Deployment, timeout: str, lease_share: float
) -> None:
    """A timeout of nothing stands for a quarter of an hour; one in the past is over at once
    (protocol.md 12).
    """
    lease, _ = asks(on, call("charge"), terms=f"{{timeout: {timeout}}}")
    if lease_share:
        on.pass_time(lease_share - 0.01)
        assert status(on, lease) == "blocked"
        on.pass_time(0.02)
    assert status(on, lease) == "running"
    decision = on.agent.submit(attempt(on, lease.execution_id), call("charge"))
    assert (decision.decision, decision.reason) == ("denied", "approval_timeout")


@scenario("nameless decisions")
def test_b16_somebody_without_a_name_decides_where_anybody_may(on: Deployment) -> None:
    """Not where approvers are named."""
    _, approval = asks(on, call("charge"))
    assert approval.approvers is None
    on.operator.grant_approval(approval.id)
    assert on.operator.get_approval(approval.id).decided_by == ""
    _, approval = asks(on, call("charge"), terms="{approvers: [alice]}")
    assert code_of(lambda: on.operator.grant_approval(approval.id)) == "forbidden"
    assert code_of(lambda: on.operator.deny_approval(approval.id)) == "forbidden"
    assert on.operator.get_approval(approval.id) == approval


def test_b17_approvals_of_model_calls_say_so(on: Deployment) -> None:
    """Every event of the step has its kind."""
    lease, approval = asks(on, call("charge", kind="llm_call"))
    on.operator.grant_approval(approval.id, "alice")
    later = attempt(on, lease.execution_id)
    on.agent.submit(later, call("charge", kind="llm_call"))
    on.agent.complete_step(later, approval.step_id, "1")
    steps = [payload for kind, payload in log(on, lease.execution_id) if kind.startswith("step.")]
    assert len(steps) == 5
    assert {payload["step_type"] for payload in steps} == {"llm_call"}


def test_b26_cancelling_closes_what_was_asked(on: Deployment) -> None:
    """The approval expires and the step is denied, in this order, after the execution's end."""
    lease, approval = asks(on, call("charge"))
    on.operator.cancel(lease.execution_id)
    closed = on.operator.get_approval(approval.id)
    assert (closed.status, closed.rationale) == ("expired", "execution_cancelled")
    (step,) = on.operator.list_steps(lease.execution_id)
    assert (step.status, step.error) == ("denied", {"reason": "execution_cancelled"})
    assert kinds(on, lease.execution_id)[-3:] == [
        "execution.cancelled",
        "approval.expired",
        "step.denied",
    ]


@scenario("alone")
def test_approvals_are_listed_until_they_are_decided(on: Deployment) -> None:
    """The oldest first, of all executions (protocol.md 2.3)."""
    first, second, third = (asks(on, call("charge", n))[1] for n in range(3))
    assert on.operator.list_approvals() == [first, second, third]
    on.operator.grant_approval(second.id, "alice")
    assert on.operator.list_approvals() == [first, third]
    on.operator.cancel(first.execution_id)
    assert on.operator.list_approvals() == [third]


def test_an_approval_that_there_is_not(on: Deployment) -> None:
    """It is not found, by whatever asks for it."""
    unknown = "01890000-0000-7000-8000-000000000000"
    assert code_of(lambda: on.operator.get_approval(unknown)) == "not_found"
    assert code_of(lambda: on.operator.grant_approval(unknown, "alice")) == "not_found"
    assert code_of(lambda: on.operator.deny_approval(unknown, "alice")) == "not_found"


def test_b09_the_events_of_an_approval(on: Deployment) -> None:
    """They name the approval, its step and its execution, and who decided."""
    lease, approval = asks(on, call("charge"))
    on.operator.grant_approval(approval.id, "alice", "fine")
    told = [payload for kind, payload in log(on, lease.execution_id) if "approval." in kind]
    names = {
        "approval_id": approval.id,
        "step_id": approval.step_id,
        "execution_id": lease.execution_id,
    }
    assert told == [
        {**names, "status": "pending"},
        {**names, "status": "granted", "decided_by": "alice", "rationale": "fine"},
    ]
