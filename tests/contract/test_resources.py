"""Resources: environments that steps change, and captures of them (protocol.md 9.6, 9.5)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from rebuno_sync.types import Capture, CaptureFailure, LeaseKey, Proposal, Registration, Touched

from .deployments import AGENT, Deployment
from .moves import attempt, call, code_of, log, next_attempt, once, perform, start
from .scenarios import scenario

REPO = Registration("repo", "git", '{"url": "u", "depth": 1}', every_steps=1)

DEEP = "[" * 400 + "]" * 400
"""JSON that is nested too deep to be compared."""


def changing(name: str = "edit", *keys: str) -> Proposal:
    """A call that changes resources."""
    return call(name)._replace(resources=keys or ("repo",))


def registered(on: Deployment, wanted: Registration = REPO) -> LeaseKey:
    """The attempt of an execution that has a resource."""
    lease = start(on)
    on.agent.resources.register(lease, wanted)
    return lease


def capture(on: Deployment, lease: LeaseKey, reference: str, key: str = "repo") -> None:
    """Capture a resource as it is."""
    view = on.agent.resources.register(lease, REPO._replace(key=key))
    on.agent.resources.keep(lease, [Capture(key, view.generation, reference)], [])


def told(on: Deployment, execution_id: str, kind: str) -> list[dict[str, Any]]:
    return [payload for it, payload in log(on, execution_id) if it == kind]


@scenario("forks")
def test_a_resource_is_registered_once(on: Deployment) -> None:
    """The second registration finds it, also in a later attempt and with its keys in another
    order, and is no event."""
    lease = start(on)
    view = on.agent.resources.register(lease, REPO)
    assert (view.key, view.generation, view.count, view.covered) == ("repo", 0, 0, False)
    assert (view.binding, view.checkpoint_ref, view.on_completion) == (None, None, True)
    again = REPO._replace(configuration='{"depth":1,"url":"u"}')
    assert on.agent.resources.register(next_attempt(on, lease), again) == view
    (payload,) = told(on, lease.execution_id, "resource.registered")
    assert payload == {
        "key": "repo",
        "driver_id": "git",
        "configuration": {"url": "u", "depth": 1},
        "coverage_reuse": False,
        "every_steps": 1,
        "on_completion": True,
    }


@scenario("forks")
@pytest.mark.parametrize(
    "other",
    [{"driver_id": "svn"}, {"configuration": "{}"}, {"coverage_reuse": True}],
    ids=lambda it: next(iter(it)),
)
def test_another_resource_under_the_key_is_a_conflict(
    on: Deployment, other: dict[str, Any]
) -> None:
    """What the execution has done to one is not done to the other."""
    lease = registered(on)
    wanted = REPO._replace(**other)
    assert code_of(lambda: on.agent.resources.register(lease, wanted)) == "conflict"


@scenario("forks")
@pytest.mark.parametrize(
    "wrong",
    [
        {"key": "a b"},
        {"key": ""},
        {"key": "k" * 129},
        {"driver_id": ""},
        {"every_steps": -1},
        {"configuration": DEEP},
    ],
    ids=lambda wrong: repr(wrong)[:30],
)
def test_what_can_be_no_resource(on: Deployment, wrong: dict[str, Any]) -> None:
    """Its key, its driver, its numbers or its configuration are wrong."""
    lease, wanted = start(on), REPO._replace(**wrong)
    assert code_of(lambda: on.agent.resources.register(lease, wanted)) == "validation_error"


@scenario("forks")
def test_captures_can_be_asked_for_later(on: Deployment) -> None:
    """Once; what was asked for then stays."""
    lease = registered(on, REPO._replace(every_steps=0))
    view = on.agent.resources.register(lease, REPO._replace(every_steps=2, on_completion=False))
    assert (view.every_steps, view.on_completion) == (2, False)
    assert on.agent.resources.register(lease, REPO) == view
    assert len(told(on, lease.execution_id, "resource.registered")) == 2


@scenario("forks")
def test_a_resource_is_bound_to_one_thing(on: Deployment) -> None:
    """The same again is nothing; another is a conflict."""
    lease = registered(on)
    on.agent.resources.bind(lease, "repo", '{"path": "/a", "n": 1}')
    on.agent.resources.bind(lease, "repo", '{"n": 1, "path": "/a"}')
    assert code_of(lambda: on.agent.resources.bind(lease, "repo", "2")) == "conflict"
    assert code_of(lambda: on.agent.resources.bind(lease, "other", "2")) == "not_found"
    assert code_of(lambda: on.agent.resources.bind(lease, "repo", DEEP)) == "validation_error"
    assert code_of(lambda: on.agent.resources.bind(lease, "repo", "null")) == "validation_error"
    view = on.agent.resources.register(next_attempt(on, lease), REPO)
    assert view.binding == {"path": "/a", "n": 1}
    assert len(told(on, lease.execution_id, "resource.bound")) == 1


@scenario("forks")
def test_an_ended_lease_registers_nothing(on: Deployment) -> None:
    """Nor does that of an ended execution."""
    lease = registered(on)
    later = next_attempt(on, lease)
    assert code_of(lambda: on.agent.resources.register(lease, REPO)) == "lease_superseded"
    on.agent.complete(later, "null")
    assert code_of(lambda: on.agent.resources.register(later, REPO)) == "execution_terminal"


@scenario("forks")
def test_a_step_says_what_it_touches(on: Deployment) -> None:
    """What it declares, and what is not known to be left alone; a model call declares nothing."""
    lease = registered(on)
    on.agent.resources.register(lease, REPO._replace(key="db", coverage_reuse=True))
    first = perform(on, lease, changing("edit", "repo", "db"))
    assert set(first.resources) == {Touched("repo", 1, True), Touched("db", 1, True)}
    second = perform(on, lease, call("look"))
    assert second.resources == (Touched("repo", 2),)
    third = perform(on, lease, changing("edit", "db")._replace(kind="llm_call"))
    assert third.resources == (Touched("repo", 3),)
    begun = told(on, lease.execution_id, "step.executing")
    assert begun[0]["resources"] == ["db", "repo"]
    assert begun[0]["generations"] == {"repo": 1, "db": 1}
    assert begun[1]["generations"] == {"repo": 2}
    assert "resources" not in begun[1]


@scenario("forks")
def test_an_unknown_resource_is_refused(on: Deployment) -> None:
    """Before anything is decided, and without using up a place."""
    lease = start(on)
    assert code_of(lambda: on.agent.submit(lease, changing())) == "validation_error"
    assert on.operator.list_steps(lease.execution_id) == []
    on.agent.resources.register(lease, REPO)
    step = on.agent.submit(lease, changing())
    assert on.operator.get_step(lease.execution_id, step.step_id).occurrence == 0


@scenario("forks")
def test_captures_are_due_every_so_many_steps(on: Deployment) -> None:
    """Of those that change it."""
    lease = registered(on, REPO._replace(every_steps=2))
    due = [perform(on, lease, changing("edit")).resources[0].due for _ in range(4)]
    assert due == [False, True, False, True]
    assert on.agent.resources.register(lease, REPO).count == 4


@scenario("forks")
def test_a_step_that_starts_again_begins_a_new_generation(on: Deployment) -> None:
    """Its body may have changed the resource before it was cut down."""
    lease = registered(on)
    assert on.agent.submit(lease, changing()).resources == (Touched("repo", 1, True),)
    later = next_attempt(on, lease)
    assert on.agent.submit(later, changing()).resources == (Touched("repo", 2, True),)
    begun = told(on, lease.execution_id, "step.executing")
    assert [it["generations"] for it in begun] == [{"repo": 1}, {"repo": 2}]


@scenario("forks")
def test_an_unknown_outcome_counts_as_a_change(on: Deployment) -> None:
    """The step is settled."""
    lease = registered(on)
    on.agent.submit(lease, once()._replace(resources=("repo",)))
    later = next_attempt(on, lease)
    assert on.agent.submit(later, once()._replace(resources=("repo",))).decision == "replay"
    assert on.agent.resources.register(later, REPO).count == 1


@scenario("forks")
def test_a_capture_covers_until_the_next_change(on: Deployment) -> None:
    """It is told among the points of a fork, and in the log."""
    lease = registered(on)
    perform(on, lease, changing())
    capture(on, lease, "c1")
    assert on.agent.resources.register(lease, REPO).covered
    perform(on, lease, changing())
    assert not on.agent.resources.register(lease, REPO).covered
    (found,) = on.operator.fork_points(lease.execution_id).checkpoints
    assert (found.key, found.generation, found.checkpoint_ref) == ("repo", 1, "c1")
    events = on.operator.events(lease.execution_id)
    assert found.invalidated_seq is not None
    assert events[found.invalidated_seq - 1].type == "step.executing"
    (payload,) = told(on, lease.execution_id, "resource.checkpointed")
    assert payload["covered_seq"] == found.covered_seq < found.invalidated_seq


@scenario("forks")
def test_a_capture_of_no_use_is_told(on: Deployment) -> None:
    """It is no error of the request: the word for it is in the log."""
    lease = registered(on)
    perform(on, lease, changing())
    on.agent.resources.keep(
        lease,
        [
            Capture("other", 1, "c"),
            Capture("repo", 1, ""),
            Capture("repo", 1, "c"),
        ],
        [CaptureFailure("repo", 1, "no room")],
    )
    on.agent.resources.keep(lease, [Capture("repo", 0, "c")], [])
    on.agent.submit(lease, changing())
    on.agent.resources.keep(lease, [Capture("repo", 2, "c")], [])
    failed = told(on, lease.execution_id, "resource.checkpoint_failed")
    assert [it["error"] for it in failed] == [
        "no room",
        "unknown_resource",
        "missing_checkpoint_ref",
        "duplicate_capture",
        "stale_generation",
        "writers_active",
    ]
    assert on.operator.fork_points(lease.execution_id).checkpoints == []


@scenario("forks", "subagents")
def test_a_subagents_step_counts_as_a_change(on: Deployment) -> None:
    """When the subagent has ended."""
    lease = registered(on)
    step_id = on.agent.submit(lease, changing()).step_id
    spawned_by = {"execution_id": lease.execution_id, "step_id": step_id}
    child = on.operator.create(AGENT, spawned_by=spawned_by)
    on.agent.complete(attempt(on, child.id), "null")
    assert on.agent.resources.register(lease, REPO).count == 1


@scenario("forks", "sessions")
def test_the_next_of_a_session_inherits_its_resources(on: Deployment) -> None:
    """Bound to the same thing, with a history of their own; it is told before the execution
    starts (protocol.md 9.6).
    """
    name = f"session {uuid.uuid4()}"
    first, second = (on.operator.create(AGENT, session=name) for _ in range(2))
    lease = attempt(on, first.id)
    on.agent.resources.register(lease, REPO)
    on.agent.resources.bind(lease, "repo", '{"path": "/a"}')
    perform(on, lease, changing())
    capture(on, lease, "c1")
    on.agent.complete(lease, "null")
    assert [kind for kind, _ in log(on, second.id)][:4] == [
        "execution.created",
        "resource.registered",
        "resource.bound",
        "execution.started",
    ]
    view = on.agent.resources.register(attempt(on, second.id), REPO)
    assert (view.generation, view.count, view.checkpoint_ref) == (0, 0, None)
    assert (view.binding, view.covered) == ({"path": "/a"}, False)
    assert len(told(on, second.id, "resource.registered")) == 1


# -- forks


@scenario("forks")
def test_a_fork_begins_with_what_was_captured(on: Deployment) -> None:
    """Its resource is unbound, and to be created from the checkpoint that covers the point."""
    lease = registered(on)
    on.agent.resources.bind(lease, "repo", '"/a"')
    perform(on, lease, changing())
    capture(on, lease, "c1")
    at = on.operator.fork_points(lease.execution_id).latest_seq
    perform(on, lease, changing())
    capture(on, lease, "c2")
    fork = on.operator.fork(lease.execution_id, at)
    (found, _) = on.operator.fork_points(lease.execution_id).checkpoints
    restoration = {
        "repo": {"checkpoint_ref": "c1", "checkpoint_seq": found.covered_seq, "covered": True}
    }
    assert fork.restoration == restoration
    assert on.operator.get(fork.id).restoration is None
    (payload,) = told(on, fork.id, "execution.forked")
    assert payload["restoration"] == restoration
    taken = attempt(on, fork.id)
    view = on.agent.resources.register(taken, REPO)
    assert (view.binding, view.checkpoint_ref, view.covered) == (None, "c1", True)
    assert (view.generation, view.count) == (1, 1)
    kinds = [kind for kind, _ in log(on, fork.id) if kind.startswith("resource.")]
    assert kinds == ["resource.registered", "resource.initialized", "resource.checkpointed"]
    points = on.operator.fork_points(fork.id)
    assert points.resources == {"repo": view.registered_seq}
    assert [it.checkpoint_ref for it in points.checkpoints] == ["c1"]


@scenario("forks")
def test_a_fork_between_captures_takes_the_last_one(on: Deployment) -> None:
    """And says that it does not cover the point; without any, it begins anew."""
    lease = registered(on)
    begun = on.operator.fork_points(lease.execution_id).latest_seq
    perform(on, lease, changing())
    capture(on, lease, "c1")
    perform(on, lease, changing())
    at = on.operator.fork_points(lease.execution_id).latest_seq
    fork = on.operator.fork(lease.execution_id, at)
    assert fork.restoration is not None
    assert fork.restoration["repo"]["covered"] is False
    view = on.agent.resources.register(attempt(on, fork.id), REPO)
    assert (view.checkpoint_ref, view.covered, view.generation) == ("c1", False, 3)
    assert view.count == 2
    heir = on.operator.fork(fork.id, on.operator.fork_points(fork.id).latest_seq)
    assert heir.restoration is not None
    assert heir.restoration["repo"]["covered"] is False
    first = on.operator.fork(lease.execution_id, begun)
    assert first.restoration == {"repo": {"covered": False}}
    view = on.agent.resources.register(attempt(on, first.id), REPO)
    assert (view.checkpoint_ref, view.count) == (None, 0)


# -- sessions


@pytest.fixture
def session() -> str:
    """One that nobody else uses."""
    return f"session {uuid.uuid4()}"


def in_session(on: Deployment, session: str, **more: str) -> LeaseKey:
    """The first attempt of the next execution of a session."""
    return attempt(on, on.operator.create(AGENT, session=session, **more).id)


def worked(on: Deployment, session: str) -> str:
    """The id of an execution of the session that has changed and captured its resource."""
    lease = in_session(on, session)
    on.agent.resources.register(lease, REPO)
    on.agent.resources.register(lease, REPO._replace(key="unbound", coverage_reuse=True))
    on.agent.resources.bind(lease, "repo", '{"path": "/a"}')
    perform(on, lease, changing())
    capture(on, lease, "c1")
    on.agent.complete(lease, "1")
    return lease.execution_id


@scenario("forks")
def test_a_session_keeps_its_resources(on: Deployment, session: str) -> None:
    """The next execution finds each as it is bound, unchanged as yet, with nothing captured; its
    log tells of them before it begins."""
    worked(on, session)
    lease = in_session(on, session)
    begun = [(kind, it.get("key")) for kind, it in log(on, lease.execution_id)]
    assert begun[:6] == [
        ("execution.created", None),
        ("resource.registered", "repo"),
        ("resource.bound", "repo"),
        ("resource.registered", "unbound"),
        ("execution.started", None),
        ("dispatch.queued", None),
    ]
    points = on.operator.fork_points(lease.execution_id)
    assert (points.resources, points.checkpoints) == ({"repo": 2, "unbound": 4}, [])
    view = on.agent.resources.register(lease, REPO)
    assert (view.binding, view.checkpoint_ref, view.covered) == ({"path": "/a"}, None, False)
    assert (view.generation, view.count, view.registered_seq) == (0, 0, 2)
    assert perform(on, lease, changing()).resources == (Touched("repo", 1, True),)
    other = REPO._replace(driver_id="svn")
    assert code_of(lambda: on.agent.resources.register(lease, other)) == "conflict"
    assert len(told(on, lease.execution_id, "resource.registered")) == 2


@scenario("forks")
def test_resources_come_from_the_last_that_completed(on: Deployment, session: str) -> None:
    """What failed leaves none; all before it are handed on, whether used or not."""
    worked(on, session)
    on.agent.complete(in_session(on, session), "2")
    failed = in_session(on, session)
    on.agent.resources.register(failed, REPO._replace(key="of-the-failed-one"))
    on.agent.fail(failed, "it went wrong")
    last = in_session(on, session)
    assert on.operator.fork_points(last.execution_id).resources.keys() == {"repo", "unbound"}
    assert on.agent.resources.register(last, REPO).binding == {"path": "/a"}


@scenario("forks")
def test_resources_stay_in_their_session(on: Deployment, session: str) -> None:
    """One that goes on from another's state in a session of its own begins without any, and so
    does a fork that has one of its own."""
    parent = worked(on, session)
    lease = in_session(on, f"{session} b", parent_execution_id=parent)
    assert on.agent.previous(lease.execution_id) == 1
    assert on.operator.fork_points(lease.execution_id).resources == {}
    at = on.operator.fork_points(parent).latest_seq - 1
    fork = on.operator.fork(parent, at, session=f"{session} c")
    view = on.agent.resources.register(attempt(on, fork.id), REPO)
    assert (view.binding, view.checkpoint_ref) == (None, "c1")
