"""Forks: executions that begin with what was settled in another one (protocol.md 9.5)."""

from __future__ import annotations

import uuid

import pytest

from rebuno_sync.errors import ForbiddenError
from rebuno_sync.types import Execution, LeaseKey, Scope

from .deployments import AGENT, Deployment, Wired
from .moves import attempt, call, code_of, kinds, log, next_attempt, once, perform, rules, start
from .scenarios import bundle, over_http, scenario

DELIVERIES = {"dispatch.queued", "dispatch.acked", "dispatch.failed", "dispatch.discarded"}


def settled_at(on: Deployment, lease: LeaseKey, nth: int = 1) -> int:
    """The number of the event that settled the nth step."""
    events = on.operator.events(lease.execution_id)
    ends = ("step.succeeded", "step.failed", "step.denied")
    return [event.event_seq for event in events if event.type in ends][nth - 1]


def forked(on: Deployment, lease: LeaseKey, **how: str) -> Execution:
    """A fork at the newest event."""
    last = on.operator.fork_points(lease.execution_id).latest_seq
    return on.operator.fork(lease.execution_id, last, **how)


def test_b36_a_fork_replays_what_was_settled_by_then(on: Deployment) -> None:
    """After the first of two steps, in a new session: the first replays, the second runs."""
    lease = start(on, {"n": 1})
    first = perform(on, lease, call("a"), "one")
    perform(on, lease, call("b"), "two")
    session = str(uuid.uuid4())
    fork = on.operator.fork(lease.execution_id, settled_at(on, lease), session)
    assert (fork.agent_id, fork.input) == (AGENT, {"n": 1})
    assert (fork.forked_from, fork.fork_seq) == (lease.execution_id, settled_at(on, lease))
    told = [kind for kind in kinds(on, fork.id) if kind not in DELIVERIES]
    assert told == [
        *("execution.created", "execution.forked"),
        *("step.proposed", "step.allowed", "step.executing", "step.succeeded"),
        "execution.started",
    ]
    taken = attempt(on, fork.id)
    again = on.agent.submit(taken, call("a"))
    assert (again.decision, again.result) == ("replay", "one")
    assert again.step_id != first.step_id
    assert on.agent.submit(taken, call("b")).decision == "proceed"


@scenario("forks")
def test_the_log_of_a_fork_says_where_it_is_from(on: Deployment) -> None:
    """Its second event names the source and the event, and its steps' events their new ids."""
    lease = start(on)
    perform(on, lease, call("a"))
    fork = forked(on, lease)
    entries = log(on, fork.id)
    kind, payload = entries[1]
    assert (kind, payload["source_execution_id"]) == ("execution.forked", lease.execution_id)
    assert (payload["fork_seq"], payload["policy_override"]) == (fork.fork_seq, False)
    (step,) = on.operator.list_steps(fork.id)
    said = {payload["step_id"] for kind, payload in entries if kind.startswith("step.")}
    assert said == {step.step_id}
    assert (step.execution_id, step.status, step.target) == (fork.id, "succeeded", "a")


@scenario("forks")
def test_open_steps_are_not_copied(on: Deployment) -> None:
    """An executing step runs in the fork as if nobody had begun it; both go their ways."""
    lease = start(on)
    perform(on, lease, call("a"), 1)
    open_step = on.agent.submit(lease, call("b"))
    taken = attempt(on, forked(on, lease).id)
    assert [on.agent.submit(taken, call(name)).decision for name in "ab"] == ["replay", "proceed"]
    on.agent.complete_step(lease, open_step.step_id, '"of the source"')
    later = next_attempt(on, taken)
    decisions = [on.agent.submit(later, call(name)).decision for name in "ab"]
    assert decisions == ["replay", "proceed"]


@scenario("forks")
def test_places_are_kept(on: Deployment) -> None:
    """Of equal calls, the fork meets those that were settled by then in their order."""
    lease = start(on)
    for n in range(3):
        perform(on, lease, call("a"), n)
    fork = on.operator.fork(lease.execution_id, settled_at(on, lease, 2))
    taken = attempt(on, fork.id)
    met = [on.agent.submit(taken, call("a")) for _ in range(3)]
    assert [(it.decision, it.result) for it in met] == [
        ("replay", 0),
        ("replay", 1),
        ("proceed", None),
    ]


@scenario("forks")
@pytest.mark.parametrize("ended", ["complete", "fail", "cancel"])
def test_what_has_ended_can_be_forked(on: Deployment, ended: str) -> None:
    """However it ended; what was cancelled in it is not copied."""
    lease = start(on)
    perform(on, lease, call("a"), 1)
    on.agent.submit(lease, call("b"))
    match ended:
        case "complete":
            on.agent.complete(lease, "null")
        case "fail":
            on.agent.fail(lease, "boom")
        case "cancel":
            on.operator.cancel(lease.execution_id)
    fork = forked(on, lease)
    assert fork.status == "running"
    taken = attempt(on, fork.id)
    assert [on.agent.submit(taken, call(name)).decision for name in "ab"] == ["replay", "proceed"]


@scenario("forks")
def test_a_failure_replays_in_a_fork(on: Deployment) -> None:
    """An operator's fork changes nothing of what was recorded."""
    lease = start(on)
    decision = on.agent.submit(lease, call("a"))
    on.agent.fail_step(lease, decision.step_id, '{"message": "no"}')
    again = on.agent.submit(attempt(on, forked(on, lease).id), call("a"))
    assert (again.decision, again.error) == ("replay", {"message": "no"})


@scenario("forks")
def test_a_fork_of_a_fork(on: Deployment) -> None:
    """It begins with what its source copied and with what that did itself."""
    lease = start(on)
    perform(on, lease, call("a"), 1)
    second = attempt(on, forked(on, lease).id)
    on.agent.submit(second, call("a"))
    perform(on, second, call("b"), 2)
    third = attempt(on, forked(on, second).id)
    met = [on.agent.submit(third, call(name)) for name in "ab"]
    assert [(it.decision, it.result) for it in met] == [("replay", 1), ("replay", 2)]


@scenario("forks")
def test_where_an_execution_can_be_forked(on: Deployment) -> None:
    """At any of its events and at no other number."""
    lease = start(on)
    perform(on, lease, call("a"))
    points = on.operator.fork_points(lease.execution_id)
    assert points.latest_seq == len(on.operator.events(lease.execution_id))
    assert (points.resources, points.checkpoints) == ({}, [])
    for at_seq in (0, -1, points.latest_seq + 1000):
        refused = code_of(lambda seq=at_seq: on.operator.fork(lease.execution_id, seq))  # type: ignore[misc]
        assert refused == "validation_error"
    begins = on.operator.fork(lease.execution_id, 1)
    assert on.agent.submit(attempt(on, begins.id), call("a")).decision == "proceed"


@scenario("forks")
def test_a_fork_of_nothing(on: Deployment) -> None:
    """There is no such execution."""
    nobody = str(uuid.uuid4())
    assert code_of(lambda: on.operator.fork(nobody, 1)) == "not_found"
    assert code_of(lambda: on.operator.fork_points(nobody)) == "not_found"


@scenario("forks")
def test_the_session_of_a_fork_is_a_new_one(on: Deployment) -> None:
    """A session that has executions is refused."""
    lease = start(on)
    session = str(uuid.uuid4())
    assert forked(on, lease, session=session).session == session
    assert code_of(lambda: forked(on, lease, session=session)) == "conflict"
    assert code_of(lambda: forked(on, lease, session=" ")) == "validation_error"


# -- policies


@pytest.mark.parametrize(
    ("then", "decision"),
    [("allow", "proceed"), ("deny", "denied"), ("require_approval", "blocked")],
)
def test_b37_a_fork_follows_policy(on: Deployment, then: str, decision: str) -> None:
    """Also for what must not run twice: there is no gate besides."""
    lease = start(on)
    perform(on, lease, call("a"))
    rules(on, "charge", f"{{decision: {then}}}")
    taken = attempt(on, forked(on, lease).id)
    assert on.agent.submit(taken, once("charge")).decision == decision


def test_b38_a_fork_may_have_a_policy_of_its_own(on: Deployment) -> None:
    """It decides on new steps instead of the agent's, and a fork of the fork inherits it; a denial
    that was copied stays one."""
    rules(on, "charge", "{decision: deny}")
    lease = start(on)
    assert on.agent.submit(lease, call("charge")).decision == "denied"
    fork = forked(on, lease, policy_bundle=bundle("refund", "{decision: deny}", on.generation))
    _, payload = log(on, fork.id)[1]
    assert payload["policy_override"] is True
    taken = attempt(on, fork.id)
    names = ("charge", "charge", "refund")
    decisions = [on.agent.submit(taken, call(name)).decision for name in names]
    assert decisions == ["denied", "proceed", "denied"]
    heir = attempt(on, forked(on, taken).id)
    assert on.agent.submit(heir, call("refund", 2)).decision == "denied"
    assert on.agent.submit(start(on), call("refund")).decision == "proceed"


@over_http
def test_b38_a_policy_of_its_own_needs_the_scope_of_policies(on: Wired) -> None:
    """Whoever may only create forks has it refused; a fork of that fork inherits the policy all
    the same. (In process whoever has the `Kernel` may do everything.)
    """
    lease = start(on)
    last = on.operator.fork_points(lease.execution_id).latest_seq
    own = bundle("refund", "{decision: deny}", on.generation)
    some, both = (
        on.bearer(on.bearer(on.token).create_key("forks", scopes).token)
        for scopes in (
            [Scope.EXECUTIONS_WRITE],
            [Scope.EXECUTIONS_WRITE, Scope.POLICIES_WRITE],
        )
    )
    with pytest.raises(ForbiddenError, match="policies:write"):
        some.fork(lease.execution_id, last, policy_bundle=own)
    fork = both.fork(lease.execution_id, last, policy_bundle=own)
    heir = some.fork(fork.id, 1)
    assert on.agent.submit(attempt(on, heir.id), call("refund")).decision == "denied"


def test_b38_a_policy_that_is_none_is_refused(on: Deployment) -> None:
    """And nothing is created."""
    lease = start(on)
    refused = code_of(lambda: forked(on, lease, policy_bundle="rules: 5"))
    assert refused == "validation_error"
