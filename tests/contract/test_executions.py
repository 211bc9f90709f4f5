"""From creation to the end (protocol.md 9, Appendix B)."""

from __future__ import annotations

import pytest

from rebuno_sync.errors import ConflictError, NotFoundError
from rebuno_sync.types import Renewal

from .deployments import AGENT, MAX_ATTEMPTS, Deployment
from .moves import asks, attempt, call, code_of, create, kinds, log, next_attempt, perform, start
from .scenarios import scenario

BEGUN = ["execution.created", "execution.started", "dispatch.queued"]


def test_b01_a_new_execution_is_running_and_queued(on: Deployment) -> None:
    """Creating answers `running`, with three events and the first dispatch at attempt 0."""
    execution = create(on, {"order": 7})
    assert execution.status == "running"
    assert execution.agent_id == AGENT
    assert execution.input == {"order": 7}
    assert on.operator.get(execution.id) == execution
    events = log(on, execution.id)
    assert [kind for kind, _ in events[:3]] == BEGUN
    assert [payload["status"] for _, payload in events[:3]] == ["pending", "running", "pending"]
    assert events[2][1]["attempt"] == 0


@pytest.mark.parametrize("input", [None, 0, "", [], {"a": [1, {"b": "\0"}]}, 2**60, 1.0])
def test_the_input_comes_back_as_it_was_given(on: Deployment, input: object) -> None:
    """Whatever JSON value the input is, the operator and the agent read the same one."""
    execution = create(on, input)
    assert on.operator.get(execution.id).input == input
    assert on.agent.get_execution(execution.id) == on.operator.get(execution.id)


def test_an_execution_needs_a_registered_agent(on: Deployment) -> None:
    """Creating for an agent that nobody registered is refused as not found."""
    with pytest.raises(NotFoundError, match="nobody"):
        on.operator.create("nobody")
    assert code_of(lambda: on.operator.create("")) == "not_found"
    on.register("nobody")
    assert on.operator.create("nobody").agent_id == "nobody"


def test_b22_completing_ends_an_execution(on: Deployment) -> None:
    """Completion records the output, retires the lease and is the last event; nothing is due any
    more.
    """
    lease = start(on)
    perform(on, lease, call())
    on.agent.complete(lease, '{"answer": 42}')
    execution = on.operator.get(lease.execution_id)
    assert (execution.status, execution.output) == ("completed", {"answer": 42})
    assert execution.failure_reason == ""
    events = log(on, lease.execution_id)
    assert events[-1] == (
        "execution.completed",
        {"execution_id": lease.execution_id, "status": "completed", "output": {"answer": 42}},
    )
    assert "dispatch.discarded" not in dict(events)
    on.expire(lease)
    assert on.lease(lease.execution_id) is None


def test_an_output_of_null_is_recorded(on: Deployment) -> None:
    """A handler that returns nothing has the output null, in the event as well."""
    lease = start(on)
    on.agent.complete(lease, "null")
    kind, payload = log(on, lease.execution_id)[-1]
    assert kind == "execution.completed"
    assert payload["output"] is None


def test_failing_ends_an_execution(on: Deployment) -> None:
    """Failure records its reason; the last event is `execution.failed`."""
    lease = start(on)
    on.agent.fail(lease, "tool_error: charge: declined")
    execution = on.operator.get(lease.execution_id)
    assert (execution.status, execution.output) == ("failed", None)
    assert execution.failure_reason == "tool_error: charge: declined"
    assert log(on, lease.execution_id)[-1] == (
        "execution.failed",
        {
            "execution_id": lease.execution_id,
            "status": "failed",
            "reason": "tool_error: charge: declined",
        },
    )


def test_a_failure_may_give_no_reason(on: Deployment) -> None:
    """Then there is none, neither in the execution nor in the event (protocol.md 9.4, 10)."""
    lease = start(on)
    on.agent.fail(lease, "")
    ended = on.operator.get(lease.execution_id)
    assert (ended.status, ended.failure_reason) == ("failed", "")
    _, payload = log(on, lease.execution_id)[-1]
    assert payload == {"execution_id": lease.execution_id, "status": "failed"}


def test_an_execution_ends_once(on: Deployment) -> None:
    """Whoever reports a second end is told that it has ended, and the first one stands."""
    lease = start(on)
    on.agent.complete(lease, "1")
    before = kinds(on, lease.execution_id)
    assert code_of(lambda: on.agent.complete(lease, "2")) == "execution_terminal"
    assert code_of(lambda: on.agent.fail(lease, "late")) == "execution_terminal"
    assert on.operator.get(lease.execution_id).output == 1
    assert kinds(on, lease.execution_id) == before


def test_ending_leaves_open_steps_as_they_are(on: Deployment) -> None:
    """A step that still executes when the handler ends is neither settled nor cancelled."""
    for end in (lambda key: on.agent.complete(key, "null"), lambda key: on.agent.fail(key, "no")):
        lease = start(on)
        step_id = on.agent.submit(lease, call()).step_id
        end(lease)
        assert on.operator.get_step(lease.execution_id, step_id).status == "executing"


def test_b25_cancelling_cuts_down_executing_steps(on: Deployment) -> None:
    """Each executing step becomes cancelled, with one event after that of the execution."""
    lease = start(on)
    done = perform(on, lease, call("done"))
    open_ids = [on.agent.submit(lease, call(name)).step_id for name in ("left", "right")]
    on.operator.cancel(lease.execution_id)
    execution = on.operator.get(lease.execution_id)
    assert (execution.status, execution.failure_reason) == ("cancelled", "client_cancelled")
    for step_id in open_ids:
        step = on.operator.get_step(lease.execution_id, step_id)
        assert step.status == "cancelled"
        assert step.error == {"reason": "execution_cancelled"}
        assert step.completed_at is not None
    assert on.operator.get_step(lease.execution_id, done.step_id).status == "succeeded"
    assert log(on, lease.execution_id)[-3:] == [
        (
            "execution.cancelled",
            {
                "execution_id": lease.execution_id,
                "status": "cancelled",
                "reason": "client_cancelled",
            },
        ),
        *(
            (
                "step.cancelled",
                {
                    "step_id": step_id,
                    "step_type": "tool_call",
                    "target": target,
                    "error": {"reason": "execution_cancelled"},
                },
            )
            for step_id, target in zip(open_ids, ("left", "right"), strict=True)
        ),
    ]


def test_cancelling_leaves_a_granted_step_that_never_began(on: Deployment) -> None:
    """It stays allowed, and no event tells of it (protocol.md 9.4)."""
    lease, approval = asks(on, call("charge"))
    on.operator.grant_approval(approval.id, "alice")
    on.operator.cancel(lease.execution_id)
    assert on.operator.get_step(lease.execution_id, approval.step_id).status == "allowed"
    assert kinds(on, lease.execution_id)[-1] == "execution.cancelled"


def test_b25_outcomes_after_a_cancel_change_nothing(on: Deployment) -> None:
    """Completing or failing a cancelled execution, or a step of it, is answered
    `execution_terminal`, without an event.
    """
    lease = start(on)
    step_id = on.agent.submit(lease, call()).step_id
    on.operator.cancel(lease.execution_id)
    before = log(on, lease.execution_id)
    assert on.agent.complete_step(lease, step_id, "1").decision == "execution_terminal"
    assert on.agent.fail_step(lease, step_id, "{}").decision == "execution_terminal"
    assert code_of(lambda: on.agent.complete(lease, "1")) == "execution_terminal"
    assert code_of(lambda: on.agent.fail(lease, "late")) == "execution_terminal"
    assert log(on, lease.execution_id) == before


def test_b27_a_submit_after_a_cancel_is_told_so(on: Deployment) -> None:
    """A submit to a cancelled execution is an answer, not an error: `execution_terminal`."""
    lease = start(on)
    on.operator.cancel(lease.execution_id)
    decision = on.agent.submit(lease, call())
    assert (decision.decision, decision.step_id) == ("execution_terminal", "")
    assert on.operator.list_steps(lease.execution_id) == []


@scenario("cancel conflicts")
def test_what_has_ended_cannot_be_cancelled(on: Deployment) -> None:
    """Cancelling an ended execution is a conflict that names its status."""
    lease = start(on)
    on.agent.complete(lease, "null")
    with pytest.raises(ConflictError, match="completed") as caught:
        on.operator.cancel(lease.execution_id)
    assert caught.value.code == "conflict"


@scenario("on demand")
def test_an_execution_can_be_cancelled_before_it_starts(on: Deployment) -> None:
    """Cancelling a queued execution ends it; nobody gets a lease for it."""
    execution = create(on)
    on.operator.cancel(execution.id)
    assert on.lease(execution.id) is None
    assert kinds(on, execution.id) == [*BEGUN, "execution.cancelled"]


def test_b20_claims_that_achieve_nothing_exhaust_a_dispatch(on: Deployment) -> None:
    """When every attempt allowed has died in silence, the next one ends the execution as failed."""
    execution = create(on)
    lease = attempt(on, execution.id)
    for number in range(2, MAX_ATTEMPTS + 1):
        lease = next_attempt(on, lease)
        assert lease.attempt == number
    on.expire(lease)
    assert on.lease(execution.id) is None
    ended = on.operator.get(execution.id)
    assert (ended.status, ended.failure_reason) == ("failed", "dispatch_exhausted")
    assert kinds(on, execution.id) == [
        *BEGUN,
        *["dispatch.acked"] * MAX_ATTEMPTS,
        "execution.failed",
    ]


@scenario("strikes")
def test_progress_keeps_a_dispatch_from_being_exhausted(on: Deployment) -> None:
    """A run that settles a step in each attempt may die any number of times."""
    lease = start(on)
    for number in range(4 * MAX_ATTEMPTS):
        for earlier in range(number):
            assert on.agent.submit(lease, call("work", earlier)).decision == "replay"
        perform(on, lease, call("work", number))
        lease = next_attempt(on, lease)
    on.agent.complete(lease, "null")


def test_b21_a_lease_lasts_as_long_as_it_is_renewed(on: Deployment) -> None:
    """Heartbeats, or submits of new steps, keep an attempt alive past any number of leases."""
    for renew in (
        lambda key, _: on.agent.renew([key]),
        lambda key, number: on.agent.submit(key, call("work", number)),
    ):
        lease = start(on)
        for number in range(4):
            on.pass_time(0.45)
            renew(lease, number)
            assert on.lease(lease.execution_id) is None
        on.expire(lease)
        assert attempt(on, lease.execution_id) == lease._replace(attempt=2)


def test_outcomes_do_not_renew_a_lease(on: Deployment) -> None:
    """Only submits and heartbeats count as signs of life; an outcome does not (protocol.md 5.3)."""
    lease = start(on)
    step_id = on.agent.submit(lease, call()).step_id
    on.pass_time(0.9)
    on.agent.complete_step(lease, step_id, "null")
    on.pass_time(0.2)
    assert attempt(on, lease.execution_id).attempt == 2


@scenario("on demand")
def test_a_late_heartbeat_counts_until_somebody_else_has_claimed(on: Deployment) -> None:
    """A lease ends by the next claim, not by the clock: a beat that comes late still saves it."""
    lease = start(on)
    on.expire(lease)
    assert on.agent.renew([lease]) == [Renewal.ACCEPTED]
    assert on.lease(lease.execution_id) is None
    on.expire(lease)
    assert attempt(on, lease.execution_id).attempt == 2
    assert on.agent.renew([lease]) == [Renewal.SUPERSEDED]


def test_heartbeats_are_answered_in_their_order(on: Deployment) -> None:
    """Each lease gets its own answer, whatever became of the others."""
    live, lost, ended = start(on), start(on), start(on)
    on.agent.complete(ended, "null")
    on.pass_time(0.6)
    on.agent.renew([live])
    on.pass_time(0.6)
    newer = attempt(on, lost.execution_id)
    unknown = live._replace(execution_id="00000000-0000-7000-8000-000000000000")
    assert on.agent.renew([ended, live, lost, unknown, newer]) == [
        Renewal.SUPERSEDED,
        Renewal.ACCEPTED,
        Renewal.SUPERSEDED,
        Renewal.SUPERSEDED,
        Renewal.ACCEPTED,
    ]
    assert on.agent.renew([]) == []
