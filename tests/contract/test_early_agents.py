"""Agents of the first generation: they sign the body alone and know no attempts (protocol.md 0.1).

A submit names its dispatch and nothing else; whatever else they ask names nothing.
"""

from __future__ import annotations

import uuid

import pytest

from rebuno_sync.types import Delta, LeaseKey, Proposal, Renewal, StepDecision

from .deployments import AGENT, Wired
from .generations import FirstGeneration
from .moves import attempt, call, code_of, kinds, next_attempt, once, start
from .scenarios import bundle, over_http, scenario

EARLY = "early"


class Early(FirstGeneration):
    """Such an agent, with executions of its own."""

    def __init__(self, on: Wired) -> None:
        on.register_early(EARLY)
        super().__init__(on.signer(EARLY, signature="body"))
        self._on = on

    def start(self) -> LeaseKey:
        """A new execution and its first attempt."""
        return attempt(self._on, self._on.operator.create(EARLY).id)

    def perform(self, lease: LeaseKey, what: Proposal, result: str) -> StepDecision:
        """Submit an effect that proceeds and record its result."""
        decision = self.submit(lease, what)
        assert decision.decision == "proceed"
        recorded = self.complete_step(lease, decision.step_id, result)
        assert recorded == StepDecision("recorded")
        return decision


@pytest.fixture
def early(on: Wired) -> Early:
    return Early(on)


@over_http
def test_b05_a_submit_names_a_dispatch_of_its_execution(on: Wired, early: Early) -> None:
    """That of another execution, an unknown one and none are bad requests, and nothing is
    recorded.
    """
    mine, other = early.start(), early.start()
    for dispatch_id in (other.dispatch_id, str(uuid.uuid4()), ""):
        wrong = mine._replace(dispatch_id=dispatch_id)
        assert code_of(lambda it=wrong: early.submit(it, call())) == "validation_error"  # type: ignore[misc]
    assert on.operator.list_steps(mine.execution_id) == []
    assert early.submit(mine, call()).decision == "proceed"


@over_http
@scenario("early agents")
def test_an_early_agent_runs_to_its_end(on: Wired, early: Early) -> None:
    """Steps that succeed and fail, heartbeats, live pieces, completion."""
    lease = early.start()
    early.perform(lease, call("won"), "1")
    lost = early.submit(lease, call("lost")).step_id
    with on.operator.stream(lease.execution_id) as stream:
        early.delta(lease, lost, 0, "piece")
        assert next(stream) == Delta(lost, 0, "piece")
    assert early.fail_step(lease, lost, '"broken"').decision == "recorded"
    assert early.renew([lease]) == [Renewal.ACCEPTED]
    early.complete(lease, '"done"')
    assert on.operator.get(lease.execution_id).output == "done"
    assert [kind for kind in kinds(on, lease.execution_id) if kind.startswith("step.")] == [
        *("step.proposed", "step.allowed", "step.executing", "step.succeeded"),
        *("step.proposed", "step.allowed", "step.executing", "step.failed"),
    ]
    assert early.submit(lease, call()).decision == "execution_terminal"
    failing = early.start()
    early.fail(failing, "it went wrong")
    assert on.operator.get(failing.execution_id).failure_reason == "it went wrong"


@over_http
@scenario("early agents")
def test_an_early_agent_meets_what_was_recorded(on: Wired, early: Early) -> None:
    """After its lease ran out the same dispatch is delivered again: results replay, an open call
    proceeds, and one that must not run twice is indeterminate.
    """
    lease = early.start()
    early.perform(lease, call("search"), "[1]")
    early.perform(lease, call("search"), "[2]")
    opened = early.submit(lease, call("open"))
    early.submit(lease, once("charge"))
    later = next_attempt(on, lease)
    assert [early.submit(later, call("search")).result for _ in range(2)] == [[1], [2]]
    assert early.submit(later, call("open")) == opened
    met = early.submit(later, once("charge"))
    assert (met.decision, met.error["reason"]) == ("replay", "indeterminate")


@over_http
@scenario("early agents", "on demand")
def test_signs_of_life_of_an_early_agent_keep_its_lease(on: Wired, early: Early) -> None:
    """Heartbeats and submits renew it; without them it runs out."""
    lease = early.start()
    for number in range(3):
        on.pass_time(0.45)
        early.renew([lease])
        on.pass_time(0.45)
        early.submit(lease, call("work", number))
        assert on.lease(lease.execution_id) is None
    on.expire(lease)
    assert attempt(on, lease.execution_id).attempt == 2


@over_http
@scenario("early agents", "unlike G0")
def test_an_early_agent_that_waited_for_a_person(on: Wired, early: Early) -> None:
    """It goes on under another dispatch. What still runs under the first is told that it is
    blocked, on which it leaves without a word, and can neither complete nor fail what has moved on.
    """
    on.operator.set_policy(EARLY, bundle("pay", "{decision: require_approval}", on.generation))
    lease = early.start()
    sibling = early.submit(lease, call("sibling")).step_id
    blocked = early.submit(lease, once("pay"))
    assert blocked.decision == "blocked"
    assert early.submit(lease, call("more")) == StepDecision("execution_blocked")
    assert early.complete_step(lease, sibling, "7").decision == "recorded"
    assert code_of(lambda: early.complete(lease, "1")) == "lease_superseded"
    assert code_of(lambda: early.fail(lease, "no")) == "lease_superseded"
    assert early.renew([lease]) == [Renewal.ACCEPTED]
    assert on.operator.get(lease.execution_id).status == "blocked"
    on.operator.grant_approval(blocked.approval_id, "alice")
    later = attempt(on, lease.execution_id)
    assert early.submit(lease, call("more")) == StepDecision("execution_blocked")
    assert early.submit(later, call("sibling")).result == 7
    assert early.perform(later, once("pay"), "1").step_id == blocked.step_id
    early.complete(later, '"paid"')
    assert on.operator.get(lease.execution_id).output == "paid"


@over_http
@scenario("early agents", "unlike G0")
def test_an_early_agent_asks_about_its_own_executions_alone(on: Wired, early: Early) -> None:
    """Another agent's are forbidden, and unknown ones not found."""
    other = start(on)
    step_id = on.agent.submit(other, call()).step_id
    for refused, code in ((other, "forbidden"), (_nothing(), "not_found")):
        asked = [
            lambda it=refused: early.submit(it, call()),
            lambda it=refused: early.complete_step(it, step_id, "1"),
            lambda it=refused: early.complete(it, "1"),
            lambda it=refused: early.delta(it, step_id, 0, "x"),
        ]
        assert [code_of(ask) for ask in asked] == [code] * len(asked)
    assert on.operator.get_step(other.execution_id, step_id).status == "executing"
    assert on.operator.get(other.execution_id).agent_id == AGENT


def _nothing() -> LeaseKey:
    return LeaseKey(str(uuid.uuid4()), str(uuid.uuid4()), 0)


@over_http
@scenario("early agents", "unlike G0")
def test_an_attempt_whose_agent_names_it_is_closed_to_others(on: Wired, early: Early) -> None:
    """Whoever has captured what an agent of G1 sent cannot use it without the attempt: its body
    alone is signed. Only live pieces are taken, with which such agents name no lease.
    """
    lease = early.start()
    naming = on.signer(EARLY, signature="body")
    step_id = naming.submit(lease, call()).step_id
    assert early.submit(lease, call()) == StepDecision("execution_blocked")
    assert code_of(lambda: early.complete_step(lease, step_id, "1")) == "lease_superseded"
    assert code_of(lambda: early.complete(lease, "1")) == "lease_superseded"
    with on.operator.stream(lease.execution_id) as stream:
        early.delta(lease, step_id, 0, "piece")
        assert next(stream).data == "piece"
    assert naming.complete_step(lease, step_id, "2").decision == "recorded"
    naming.complete(lease, '"named"')
    assert on.operator.get(lease.execution_id).output == "named"
