"""Failed tries of a step that will be tried again (protocol.md 17, ``attempts``)."""

from __future__ import annotations

import json

import pytest

from rebuno_sync.types import LeaseKey, Proposal, StepDecision

from .deployments import Deployment
from .moves import attempt, call, code_of, kinds, log, next_attempt, once, start
from .scenarios import scenario

ERROR = {"type": "app.Busy", "message": "busy", "wait": 1e-05}
RECORDED = StepDecision("recorded")


def failed_once(on: Deployment, proposal: Proposal, retry_in: float) -> tuple[LeaseKey, str]:
    """An execution with one effect, whose first try has failed; its id."""
    lease = start(on)
    step_id = on.agent.submit(lease, proposal).step_id
    assert on.agent.retrying(lease, step_id, 1, json.dumps(ERROR), retry_in) == RECORDED
    return lease, step_id


@scenario("attempts")
def test_between_two_tries_a_step_is_allowed(on: Deployment) -> None:
    """It is executing again from the moment at which the next try begins, and is settled once."""
    lease, step_id = failed_once(on, call(), 5.0)
    assert on.operator.get_step(lease.execution_id, step_id).status == "allowed"
    assert on.agent.begin_try(lease, step_id, 2) == RECORDED
    assert on.operator.get_step(lease.execution_id, step_id).status == "executing"
    assert on.agent.complete_step(lease, step_id, "1") == RECORDED
    assert kinds(on, lease.execution_id)[-6:] == [
        "step.proposed",
        "step.allowed",
        "step.executing",
        "step.retrying",
        "step.executing",
        "step.succeeded",
    ]


@scenario("attempts")
def test_the_log_tells_of_a_failed_try(on: Deployment) -> None:
    """Its event has the number of the try, the error, and when the next one comes."""
    lease, step_id = failed_once(on, call(), 2.5)
    assert log(on, lease.execution_id)[-1] == (
        "step.retrying",
        {
            "step_id": step_id,
            "step_type": "tool_call",
            "target": "search",
            "attempt": 1,
            "retry_in": 2.5,
            "error": ERROR,
        },
    )


@scenario("attempts")
@scenario("on demand")
@pytest.mark.parametrize("proposal", [call(), once()], ids=["safe_to_retry", "at_most_once"])
def test_a_later_attempt_is_told_how_many_tries_failed_and_how_long_to_wait(
    on: Deployment, proposal: Proposal
) -> None:
    """In back-off no body runs, so the effect goes on wherever it is met, however often."""
    lease, step_id = failed_once(on, proposal, 600.0)
    for left in (600.0 - 121.2, 600.0 - 242.4):
        lease = next_attempt(on, lease)
        met = on.agent.submit(lease, proposal)
        assert (met.decision, met.step_id, met.attempt) == ("proceed", step_id, 1)
        assert met.retry_in == pytest.approx(left)
    assert on.agent.begin_try(lease, step_id, 2) == RECORDED
    assert on.agent.retrying(lease, step_id, 2, "null", 0.0) == RECORDED
    lease = next_attempt(on, lease)
    met = on.agent.submit(lease, proposal)
    assert (met.decision, met.attempt, met.retry_in) == ("proceed", 2, 0.0)


@scenario("attempts")
def test_a_try_that_was_cut_down_runs_again_with_its_number(on: Deployment) -> None:
    """An effect that may be repeated is: the tries that failed before still count."""
    lease, step_id = failed_once(on, call(), 0.0)
    on.agent.begin_try(lease, step_id, 2)
    later = next_attempt(on, lease)
    assert on.agent.submit(later, call()) == StepDecision("proceed", step_id, attempt=1)
    assert on.agent.begin_try(later, step_id, 2) == RECORDED
    assert on.agent.complete_step(later, step_id, "1") == RECORDED


@scenario("attempts")
def test_a_try_that_was_cut_down_and_must_not_run_twice_is_indeterminate(on: Deployment) -> None:
    """Once its next try has begun, it may have happened."""
    lease, step_id = failed_once(on, once(), 0.0)
    on.agent.begin_try(lease, step_id, 2)
    met = on.agent.submit(next_attempt(on, lease), once())
    assert (met.decision, met.step_id) == ("replay", step_id)
    assert met.error["reason"] == "indeterminate"


@scenario("attempts")
def test_a_failed_try_may_be_told_twice(on: Deployment) -> None:
    """Its answer may have been lost: the second time does nothing, and so with a beginning."""
    lease, step_id = failed_once(on, call(), 5.0)
    before = kinds(on, lease.execution_id)
    assert on.agent.retrying(lease, step_id, 1, json.dumps(ERROR), 5.0) == RECORDED
    assert kinds(on, lease.execution_id) == before
    for _ in range(2):
        assert on.agent.begin_try(lease, step_id, 2) == RECORDED
    assert kinds(on, lease.execution_id) == [*before, "step.executing"]


@scenario("attempts")
def test_tries_come_in_their_order(on: Deployment) -> None:
    """A try that is not the next one cannot begin, nor can one fail that has failed before."""
    lease = start(on)
    step_id = on.agent.submit(lease, call()).step_id
    assert code_of(lambda: on.agent.begin_try(lease, step_id, 2)) == "conflict"
    on.agent.retrying(lease, step_id, 1, "null", 0.0)
    for wrong in (1, 3):
        assert code_of(lambda n=wrong: on.agent.begin_try(lease, step_id, n)) == "conflict"
    on.agent.begin_try(lease, step_id, 2)
    assert code_of(lambda: on.agent.retrying(lease, step_id, 1, "null", 0.0)) == "conflict"


@scenario("attempts")
def test_between_two_tries_nothing_can_be_recorded(on: Deployment) -> None:
    """No body runs, so an outcome is refused."""
    lease, step_id = failed_once(on, call(), 5.0)
    assert code_of(lambda: on.agent.complete_step(lease, step_id, "1")) == "conflict"


@scenario("attempts")
def test_an_attempt_that_is_over_can_neither_fail_a_try_nor_begin_one(on: Deployment) -> None:
    """The fence holds for both."""
    lease, step_id = failed_once(on, call(), 5.0)
    later = next_attempt(on, lease)
    assert code_of(lambda: on.agent.begin_try(lease, step_id, 2)) == "lease_superseded"
    on.agent.begin_try(later, step_id, 2)
    assert code_of(lambda: on.agent.retrying(lease, step_id, 2, "1", 0.0)) == "lease_superseded"


@scenario("attempts")
@scenario("on demand")
def test_no_try_begins_once_the_dispatch_is_retired(on: Deployment) -> None:
    """What failed may still be told, as outcomes may (protocol.md 5.4)."""
    lease = start(on)
    step_id = on.agent.submit(lease, call()).step_id
    on.retire(lease)
    assert on.agent.retrying(lease, step_id, 1, "null", 0.0) == RECORDED
    assert code_of(lambda: on.agent.begin_try(lease, step_id, 2)) == "lease_superseded"


@scenario("attempts")
def test_a_settled_step_has_no_more_tries(on: Deployment) -> None:
    """The answer is a replay, as it is to a second outcome."""
    lease = start(on)
    step_id = on.agent.submit(lease, call()).step_id
    on.agent.fail_step(lease, step_id, '"no"')
    assert on.agent.retrying(lease, step_id, 1, "null", 0.0).decision == "replay"
    assert on.agent.begin_try(lease, step_id, 2).decision == "replay"


@scenario("attempts")
def test_cancelling_ends_a_step_between_its_tries(on: Deployment) -> None:
    """It is cancelled with the execution, and nothing more can be told of it."""
    lease, step_id = failed_once(on, call(), 5.0)
    on.operator.cancel(lease.execution_id)
    assert on.operator.get_step(lease.execution_id, step_id).status == "cancelled"
    assert on.agent.begin_try(lease, step_id, 2).decision == "execution_terminal"
    assert on.agent.retrying(lease, step_id, 1, "1", 0.0).decision == "execution_terminal"
    assert kinds(on, lease.execution_id)[-2:] == ["execution.cancelled", "step.cancelled"]


@scenario("attempts")
@scenario("strikes")
def test_a_failed_try_that_is_recorded_is_progress(on: Deployment) -> None:
    """Processes that die in a long back-off do not exhaust the execution."""
    lease = start(on)
    for number in range(1, 6):
        met = on.agent.submit(lease, call())
        if number > 1:
            on.agent.begin_try(lease, met.step_id, number)
        on.agent.retrying(lease, met.step_id, number, "null", 0.0)
        on.expire(lease)
        lease = attempt(on, lease.execution_id)
    on.agent.complete(lease, "null")
