"""Submitting, replaying and settling steps (protocol.md 6 to 8)."""

from __future__ import annotations

import json

import pytest

from rebuno_sync.errors import ConflictError
from rebuno_sync.types import Proposal, StepDecision

from .deployments import Deployment
from .moves import (
    asks,
    attempt,
    call,
    code_of,
    create,
    kinds,
    log,
    next_attempt,
    once,
    perform,
    rules,
    start,
)
from .scenarios import scenario

INDETERMINATE = {
    "message": "outcome unknown: this may already have taken effect."
    " Check the state before continuing.",
    "reason": "indeterminate",
}
REFUSED = "prior attempt outcome unknown; retry refused"


def test_b02_a_recorded_step_is_replayed_under_another_dispatch(on: Deployment) -> None:
    """A dispatch that follows an approval meets what was recorded under the first, by its id."""
    rules(on, "charge", "{decision: require_approval}")
    lease = start(on)
    first = perform(on, lease, call("search", {"q": "x"}), {"hits": [1, 2]})
    approval_id = on.agent.submit(lease, call("charge")).approval_id
    on.operator.grant_approval(approval_id, "alice")
    later = attempt(on, lease.execution_id)
    assert later.dispatch_id != lease.dispatch_id
    replay = on.agent.submit(later, call("search", {"q": "x"}))
    assert (replay.decision, replay.step_id) == ("replay", first.step_id)
    assert replay.result == {"hits": [1, 2]}


def test_b04_a_recorded_step_is_replayed_to_a_later_attempt(on: Deployment) -> None:
    """After the lease ran out, the same dispatch brings a next attempt, and it meets the result."""
    lease = start(on)
    first = perform(on, lease, call("search", {"q": "x"}), {"hits": [1, 2]})
    later = next_attempt(on, lease)
    assert later == lease._replace(attempt=2)
    replay = on.agent.submit(later, call("search", {"q": "x"}))
    assert (replay.decision, replay.step_id) == ("replay", first.step_id)
    assert replay.result == {"hits": [1, 2]}
    assert replay.error_json is None


def test_a_failed_step_replays_its_error(on: Deployment) -> None:
    """What a replay gives for a failed step is the error that was recorded."""
    lease = start(on)
    step_id = on.agent.submit(lease, call()).step_id
    on.agent.fail_step(lease, step_id, '{"type": "Timeout", "detail": [1]}')
    replay = on.agent.submit(next_attempt(on, lease), call())
    assert (replay.decision, replay.step_id) == ("replay", step_id)
    assert replay.error == {"type": "Timeout", "detail": [1]}
    assert replay.result_json is None


@pytest.mark.parametrize(
    "text", ['{"b":1,"a":2}', "1e2", "1.0", "-0", '"\\u0000"', '"<&>"', "null", "[]", '"é"']
)
def test_recorded_text_comes_back_unchanged_in_value(on: Deployment, text: str) -> None:
    """A stored result is the same JSON value for whoever reads it."""
    lease = start(on)
    step_id = on.agent.submit(lease, Proposal("tool_call", "t", text)).step_id
    on.agent.complete_step(lease, step_id, text)
    step = on.operator.get_step(lease.execution_id, step_id)
    assert step.args == step.result == json.loads(text)
    later = next_attempt(on, lease)
    assert on.agent.submit(later, Proposal("tool_call", "t", text)).result == json.loads(text)


def test_b03_identical_calls_of_one_attempt_are_different_steps(on: Deployment) -> None:
    """The second submit of a call is its occurrence 1, not a replay of the first."""
    lease = start(on)
    first, second = on.agent.submit(lease, call()), on.agent.submit(lease, call())
    assert (first.decision, second.decision) == ("proceed", "proceed")
    assert first.step_id != second.step_id
    occurrences = {s.step_id: s.occurrence for s in on.operator.list_steps(lease.execution_id)}
    assert occurrences == {first.step_id: 0, second.step_id: 1}


@scenario("occurrences")
def test_each_attempt_meets_identical_calls_in_the_same_order(on: Deployment) -> None:
    """An attempt starts at occurrence 0, so it gets the results of earlier ones in their order."""
    lease = start(on)
    for number in range(3):
        perform(on, lease, call(), number)
    for _ in range(2):
        lease = next_attempt(on, lease)
        assert [on.agent.submit(lease, call()).result for _ in range(3)] == [0, 1, 2]
    assert on.agent.submit(lease, call()).decision == "proceed"


@scenario("occurrences")
def test_occurrences_are_counted_for_each_call_alone(on: Deployment) -> None:
    """Another kind, target or args begins at 0; the order of keys does not make other args, a
    number's spelling does.
    """
    lease = start(on)
    proposals = [
        Proposal("tool_call", "t", '{"a": 1, "b": 2}'),
        Proposal("tool_call", "t", '{"b":2,"a":1}'),
        Proposal("local", "t", '{"a": 1, "b": 2}'),
        Proposal("tool_call", "u", '{"a": 1, "b": 2}'),
        Proposal("tool_call", "t", '{"a": 1.0, "b": 2}'),
        Proposal("tool_call", "t", '{"a": 1, "a": 1, "b": 2}'),
    ]
    ids = [on.agent.submit(lease, proposal).step_id for proposal in proposals]
    occurrences = {s.step_id: s.occurrence for s in on.operator.list_steps(lease.execution_id)}
    assert [occurrences[step_id] for step_id in ids] == [0, 1, 0, 0, 0, 2]


@scenario("occurrences")
def test_a_denial_uses_up_an_occurrence(on: Deployment) -> None:
    """Denied calls are recorded like others: each has its place and is met there again."""
    lease = start(on)
    on.agent.submit(lease, once())
    lease = next_attempt(on, lease)
    on.agent.submit(lease, once())  # Its outcome is unknown from now on.
    denied = [on.agent.submit(lease, once()) for _ in range(2)]
    assert [decision.decision for decision in denied] == ["denied", "denied"]
    steps = {s.step_id: s.occurrence for s in on.operator.list_steps(lease.execution_id)}
    assert [steps[decision.step_id] for decision in denied] == [1, 2]
    later = next_attempt(on, lease)
    on.agent.submit(later, once())
    assert [on.agent.submit(later, once()) for _ in range(2)] == denied


@scenario("occurrences")
def test_what_records_nothing_uses_up_no_occurrence(on: Deployment) -> None:
    """A submit that ends in an error leaves the place of its call free."""
    lease = start(on)
    for bad in ("{", "[1,]", "nan", '"\x01"'):
        proposal = Proposal("tool_call", "search", bad)
        assert code_of(lambda p=proposal: on.agent.submit(lease, p)) == "validation_error"
    stranger = lease._replace(attempt=2)
    assert code_of(lambda: on.agent.submit(stranger, call())) == "lease_superseded"
    on.agent.submit(lease, call())
    (step,) = on.operator.list_steps(lease.execution_id)
    assert step.occurrence == 0


def test_args_that_are_not_json_are_refused(on: Deployment) -> None:
    """The submit is a validation error, and nothing is recorded."""
    lease = start(on)
    assert code_of(lambda: on.agent.submit(lease, Proposal("local", "t", "{1}"))) == (
        "validation_error"
    )
    assert on.operator.list_steps(lease.execution_id) == []


def test_args_that_are_absent_are_null(on: Deployment) -> None:
    """A submit without args is the same call as one whose args are null (protocol.md 6.1)."""
    lease = start(on)
    absent = on.agent.submit(lease, Proposal("tool_call", "t", "")).step_id
    null = on.agent.submit(lease, Proposal("tool_call", "t", "null")).step_id
    steps = [on.operator.get_step(lease.execution_id, step_id) for step_id in (absent, null)]
    assert [(step.occurrence, step.args) for step in steps] == [(0, None), (1, None)]
    assert steps[0].args_hash == steps[1].args_hash


def test_an_open_step_proceeds_again(on: Deployment) -> None:
    """A safe_to_retry step that was cut down runs again, as the same step and without an event."""
    lease = start(on)
    first = on.agent.submit(lease, call())
    later = next_attempt(on, lease)
    before = kinds(on, lease.execution_id)
    assert on.agent.submit(later, call()) == StepDecision("proceed", first.step_id)
    assert kinds(on, lease.execution_id) == before
    assert on.agent.complete_step(later, first.step_id, "1").decision == "recorded"


def test_b12_b28_an_orphan_that_must_not_run_twice_is_indeterminate(on: Deployment) -> None:
    """An at_most_once step that was cut down fails as indeterminate, with the text that says what
    to do.
    """
    lease = start(on)
    orphan = on.agent.submit(lease, once())
    later = next_attempt(on, lease)
    met = on.agent.submit(later, once())
    assert (met.decision, met.step_id) == ("replay", orphan.step_id)
    assert met.error == INDETERMINATE
    step = on.operator.get_step(lease.execution_id, orphan.step_id)
    assert (step.status, step.error) == ("failed", INDETERMINATE)
    assert log(on, lease.execution_id)[-1] == (
        "step.failed",
        {
            "step_id": orphan.step_id,
            "step_type": "tool_call",
            "target": "charge",
            "error": INDETERMINATE,
        },
    )


def test_b28_an_unknown_outcome_is_not_answered_by_trying_again(on: Deployment) -> None:
    """After an indeterminate end the same call is denied, other args proceed, and it is so for
    later attempts.
    """
    lease = start(on)
    on.agent.submit(lease, once("charge", 5))
    lease = next_attempt(on, lease)
    assert on.agent.submit(lease, once("charge", 5)).decision == "replay"
    denied = on.agent.submit(lease, once("charge", 5))
    assert (denied.decision, denied.reason) == ("denied", REFUSED)
    assert denied.rule_id == "__indeterminate_retry"
    step = on.operator.get_step(lease.execution_id, denied.step_id)
    assert step.status == "denied"
    assert step.error == {"reason": REFUSED, "rule_id": "__indeterminate_retry"}
    assert log(on, lease.execution_id)[-2:] == [
        (
            "step.proposed",
            {"step_id": denied.step_id, "step_type": "tool_call", "target": "charge"},
        ),
        (
            "step.denied",
            {
                "step_id": denied.step_id,
                "step_type": "tool_call",
                "target": "charge",
                "rule_id": "__indeterminate_retry",
                "error": {"reason": REFUSED, "rule_id": "__indeterminate_retry"},
            },
        ),
    ]
    assert on.agent.submit(lease, once("charge", 6)).decision == "proceed"
    lease = next_attempt(on, lease)
    assert on.agent.submit(lease, once("charge", 5)).error == INDETERMINATE
    assert on.agent.submit(lease, once("charge", 5)) == denied


def test_b28_only_the_same_at_most_once_call_is_refused(on: Deployment) -> None:
    """The rule looks at kind, target, args and the present idempotency: anything else proceeds."""
    lease = start(on)
    on.agent.submit(lease, once())
    lease = next_attempt(on, lease)
    on.agent.submit(lease, once())
    for other in (call("charge"), once("refund"), once()._replace(kind="local")):
        assert on.agent.submit(lease, other).decision == "proceed"


def test_an_agent_may_say_that_an_outcome_is_unknown(on: Deployment) -> None:
    """A failure whose error says `indeterminate` counts like one of the kernel's
    (protocol.md 8.2).
    """
    lease = start(on)
    step_id = on.agent.submit(lease, once()).step_id
    on.agent.fail_step(lease, step_id, '{"reason": "indeterminate"}')
    assert on.agent.submit(lease, once()).reason == REFUSED


@pytest.mark.parametrize("error", ['"indeterminate"', "null", "[]", '{"reason": null}', "7"])
def test_other_errors_do_not_refuse_the_next_call(on: Deployment, error: str) -> None:
    """An error may be any JSON; only an object with that reason makes the outcome unknown."""
    lease = start(on)
    step_id = on.agent.submit(lease, once()).step_id
    on.agent.fail_step(lease, step_id, error)
    assert on.agent.submit(lease, once()).decision == "proceed"
    assert on.operator.get_step(lease.execution_id, step_id).error == json.loads(error)


def test_idempotency_is_judged_by_the_present_request(on: Deployment) -> None:
    """A re-run that declares safe_to_retry proceeds on an open at_most_once step (protocol.md
    15.10).
    """
    lease = start(on)
    first = on.agent.submit(lease, once("charge"))
    later = next_attempt(on, lease)
    assert on.agent.submit(later, call("charge")) == StepDecision("proceed", first.step_id)


@pytest.mark.parametrize("idempotency", ["", "exactly_once", "AT_MOST_ONCE"])
def test_any_other_idempotency_is_safe_to_retry(on: Deployment, idempotency: str) -> None:
    """Only `at_most_once` has a special meaning (protocol.md 3.2); nothing stands for the default,
    and kinds are free as well.
    """
    odd = call("charge", kind="odd")._replace(idempotency=idempotency)  # type: ignore[arg-type]
    lease = start(on)
    first = on.agent.submit(lease, odd)
    assert on.agent.submit(next_attempt(on, lease), odd) == first
    (step,) = on.operator.list_steps(lease.execution_id)
    assert (step.kind, step.idempotency) == ("odd", idempotency or "safe_to_retry")


@scenario("outcome conflicts")
@pytest.mark.parametrize("granted", [False, True])
def test_only_a_step_that_runs_has_an_outcome(on: Deployment, granted: bool) -> None:
    """One that waits for a person, or was granted and has not begun, is a conflict that names its
    status (protocol.md 8.1 (3)).
    """
    lease, approval = asks(on, call("charge"))
    if granted:
        on.operator.grant_approval(approval.id, "alice")
        lease = attempt(on, lease.execution_id)
    before = log(on, lease.execution_id)
    for settle in (on.agent.complete_step, on.agent.fail_step):
        with pytest.raises(ConflictError, match="allowed" if granted else "awaiting_approval"):
            settle(lease, approval.step_id, "1")
    assert log(on, lease.execution_id) == before


def test_an_outcome_is_recorded_once(on: Deployment) -> None:
    """A repeated outcome is answered with the recorded one, and a different one is discarded."""
    lease = start(on)
    won = on.agent.submit(lease, call("won")).step_id
    lost = on.agent.submit(lease, call("lost")).step_id
    assert on.agent.complete_step(lease, won, '{"n": 1}').decision == "recorded"
    assert on.agent.fail_step(lease, lost, '"first"').decision == "recorded"
    before = log(on, lease.execution_id)
    for repeated in ('{"n": 1}', '{"n": 2}'):
        again = on.agent.complete_step(lease, won, repeated)
        assert (again.decision, again.result, again.error_json) == ("replay", {"n": 1}, None)
    again = on.agent.fail_step(lease, lost, '"second"')
    assert (again.decision, again.error, again.result_json) == ("replay", "first", None)
    assert log(on, lease.execution_id) == before


def test_an_outcome_of_the_other_sort_is_discarded(on: Deployment) -> None:
    """Completing a failed step, or failing a succeeded one, is a replay that carries nothing."""
    lease = start(on)
    won = perform(on, lease, call("won"), 1).step_id
    lost = on.agent.submit(lease, call("lost")).step_id
    on.agent.fail_step(lease, lost, '"broken"')
    assert on.agent.fail_step(lease, won, '"late"') == StepDecision("replay")
    assert on.agent.complete_step(lease, lost, "1") == StepDecision("replay")
    assert on.operator.get_step(lease.execution_id, won).result == 1
    assert on.operator.get_step(lease.execution_id, lost).error == "broken"


def test_a_settled_step_answers_a_superseded_attempt(on: Deployment) -> None:
    """Recorded already comes before the fence: an old attempt that repeats its outcome learns that
    it counts.
    """
    lease = start(on)
    step_id = perform(on, lease, call(), "kept").step_id
    next_attempt(on, lease)
    again = on.agent.complete_step(lease, step_id, '"kept"')
    assert (again.decision, again.result) == ("replay", "kept")


def test_b07_a_superseded_attempt_records_nothing(on: Deployment) -> None:
    """Once a next attempt exists, the old one is refused; the new one proceeds and settles."""
    lease = start(on)
    step_id = on.agent.submit(lease, call()).step_id
    later = next_attempt(on, lease)
    assert code_of(lambda: on.agent.submit(lease, call("other"))) == "lease_superseded"
    assert code_of(lambda: on.agent.complete_step(lease, step_id, "1")) == "lease_superseded"
    assert on.agent.submit(later, call()) == StepDecision("proceed", step_id)
    assert on.agent.complete_step(later, step_id, "2").decision == "recorded"
    assert on.operator.get_step(lease.execution_id, step_id).result == 2


def test_b33_terminal_steps_can_be_listed_alone(on: Deployment) -> None:
    """`terminal` leaves out open steps and keeps succeeded, failed, denied and cancelled ones."""
    lease = start(on)
    on.agent.submit(lease, once())
    lease = next_attempt(on, lease)
    on.agent.submit(lease, once())
    on.agent.submit(lease, once())
    perform(on, lease, call("won"))
    open_id = on.agent.submit(lease, call("open")).step_id

    def statuses(status: str = "") -> list[str]:
        return sorted(s.status for s in on.operator.list_steps(lease.execution_id, status))

    assert statuses() == ["denied", "executing", "failed", "succeeded"]
    assert statuses("terminal") == ["denied", "failed", "succeeded"]
    assert statuses("anything else") == statuses()
    on.operator.cancel(lease.execution_id)
    assert statuses("terminal") == ["cancelled", "denied", "failed", "succeeded"]
    assert on.operator.get_step(lease.execution_id, open_id).status == "cancelled"


def test_steps_are_listed_by_their_ids(on: Deployment) -> None:
    """The order is that of the ids' text, for operators and agents alike."""
    lease = start(on)
    for number in range(12):
        on.agent.submit(lease, call("work", number))
    ids = [step.step_id for step in on.operator.list_steps(lease.execution_id)]
    assert ids == sorted(ids)
    assert on.agent.list_steps(lease.execution_id) == on.operator.list_steps(lease.execution_id)


def test_a_step_tells_what_was_submitted(on: Deployment) -> None:
    """A step carries its kind, target, args, occurrence, idempotency and times."""
    lease = start(on)
    decision = on.agent.submit(lease, once("charge", {"cents": 5}))
    step = on.operator.get_step(lease.execution_id, decision.step_id)
    assert (step.kind, step.target, step.args) == ("tool_call", "charge", {"cents": 5})
    assert (step.occurrence, step.idempotency, step.status) == (0, "at_most_once", "executing")
    assert step.execution_id == lease.execution_id
    assert len(step.step_id) == len(step.args_hash) == 64
    assert step.started_at is not None
    assert step.completed_at is None
    on.agent.complete_step(lease, decision.step_id, "null")
    settled = on.operator.get_step(lease.execution_id, decision.step_id)
    assert (settled.status, settled.result, settled.error) == ("succeeded", None, None)
    assert settled.completed_at is not None
    assert settled.started_at == step.started_at


@scenario("unknown is not found")
def test_a_step_belongs_to_one_execution(on: Deployment) -> None:
    """The id of another execution's step is not found, neither to read nor to settle."""
    mine, other = start(on), start(on)
    step_id = on.agent.submit(other, call()).step_id
    assert code_of(lambda: on.operator.get_step(mine.execution_id, step_id)) == "not_found"
    assert code_of(lambda: on.agent.complete_step(mine, step_id, "1")) == "not_found"
    assert code_of(lambda: on.agent.fail_step(mine, step_id, "1")) == "not_found"
    assert on.operator.get_step(other.execution_id, step_id).status == "executing"


def test_the_same_call_is_another_step_in_another_execution(on: Deployment) -> None:
    """Step ids name the execution as well, so nothing is shared between executions."""
    first = perform(on, start(on), call(), "mine")
    second = on.agent.submit(start(on), call())
    assert second.decision == "proceed"
    assert second.step_id != first.step_id


def test_an_execution_without_steps_has_none(on: Deployment) -> None:
    """Both lists of steps are empty before the first submit."""
    execution = create(on)
    attempt(on, execution.id)
    assert on.operator.list_steps(execution.id) == []
    assert on.agent.list_steps(execution.id) == []
