"""The event log (protocol.md 10): exact order, exact payloads."""

from __future__ import annotations

from .deployments import Deployment
from .moves import call, create, kinds, log, next_attempt, once, perform, start
from .scenarios import scenario


@scenario("events")
def test_a_plain_run_has_the_plain_log(on: Deployment) -> None:
    """Created, started, queued, acked, four events for each step, completed: with these
    payloads.
    """
    lease = start(on)
    won = perform(on, lease, call("won", {"a": 1}), 1).step_id
    lost = on.agent.submit(lease, call("lost", kind="local")).step_id
    on.agent.fail_step(lease, lost, '{"reason": "broken"}')
    on.agent.complete(lease, "[7]")
    execution, dispatch = lease.execution_id, lease.dispatch_id

    def step(step_id: str, kind: str, target: str, **more: object) -> dict[str, object]:
        return {"step_id": step_id, "step_type": kind, "target": target, **more}

    won_, lost_ = (won, "tool_call", "won"), (lost, "local", "lost")
    queued = {"dispatch_id": dispatch, "execution_id": execution, "status": "pending", "attempt": 0}
    acked = {**queued, "status": "acked", "attempt": 1}
    assert log(on, execution) == [
        ("execution.created", {"execution_id": execution, "status": "pending"}),
        ("execution.started", {"execution_id": execution, "status": "running"}),
        ("dispatch.queued", queued),
        ("dispatch.acked", acked),
        ("step.proposed", step(*won_)),
        ("step.allowed", step(*won_, rule_id="permissive")),
        ("step.executing", step(*won_)),
        ("step.succeeded", step(*won_)),
        ("step.proposed", step(*lost_)),
        ("step.allowed", step(*lost_, rule_id="permissive")),
        ("step.executing", step(*lost_)),
        ("step.failed", step(*lost_, error={"reason": "broken"})),
        (
            "execution.completed",
            {"execution_id": execution, "status": "completed", "output": [7]},
        ),
    ]


@scenario("events")
def test_replays_leave_no_trace_in_the_log(on: Deployment) -> None:
    """A later attempt adds its ack, and then only what is new."""
    lease = start(on)
    perform(on, lease, call("a"))
    on.agent.submit(lease, once("b"))
    before = kinds(on, lease.execution_id)
    lease = next_attempt(on, lease)
    assert kinds(on, lease.execution_id) == [*before, "dispatch.acked"]
    on.agent.submit(lease, call("a"))
    assert kinds(on, lease.execution_id) == [*before, "dispatch.acked"]
    on.agent.submit(lease, once("b"))
    assert kinds(on, lease.execution_id) == [*before, "dispatch.acked", "step.failed"]
    attempts = [p["attempt"] for kind, p in log(on, lease.execution_id) if kind == "dispatch.acked"]
    assert attempts == [1, 2]


@scenario("events")
def test_events_are_numbered_without_a_gap(on: Deployment) -> None:
    """Numbers start at 1 for each execution and stay contiguous when executions take turns."""
    leases = [start(on) for _ in range(3)]
    for number in range(4):
        for lease in leases:
            perform(on, lease, call("work", number))
    for lease in leases:
        events = on.operator.events(lease.execution_id)
        assert [event.event_seq for event in events] == list(range(1, len(events) + 1))
        assert {event.execution_id for event in events} == {lease.execution_id}
        times = [event.occurred_at for event in events]
        assert times == sorted(times)


@scenario("events")
def test_events_are_read_in_pages(on: Deployment) -> None:
    """`after_seq` and `limit` cut the log; the default page is 100, the largest 1000."""
    lease = start(on)
    for number in range(280):
        perform(on, lease, call("work", number))
    execution = lease.execution_id
    everything = on.operator.events(execution, 0, 1000)
    assert len(everything) == 1000
    assert len(on.operator.events(execution, 0, 5000)) == 1000
    assert on.operator.events(execution) == everything[:100]
    assert on.operator.events(execution, limit=0) == everything[:100]
    assert on.operator.events(execution, limit=-3) == everything[:100]
    assert on.operator.events(execution, 10, 5) == everything[10:15]
    assert on.operator.events(execution, -1, 2) == everything[:2]
    assert [e.event_seq for e in on.operator.events(execution, 1000, 1000)] == list(
        range(1001, 4 + 280 * 4 + 1)
    )
    assert on.operator.events(execution, 10_000) == []


@scenario("events")
def test_the_log_of_a_new_execution_is_its_creation(on: Deployment) -> None:
    """Nothing is written for an execution that nobody has claimed."""
    assert kinds(on, create(on).id) == [
        "execution.created",
        "execution.started",
        "dispatch.queued",
    ]
