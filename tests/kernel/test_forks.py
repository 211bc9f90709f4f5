"""Forks that retry a failed execution: what is left out, what is unknown, who has the key."""

from __future__ import annotations

import pytest

from rebuno_sync.clock import ManualClock
from rebuno_sync.errors import NotFoundError
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import LeaseKey

from .moves import AGENT, attempt, call, kinds, once, perform


def begin(kernel: Kernel) -> LeaseKey:
    return attempt(kernel, kernel.create(AGENT, {"n": 1}, idempotency_key="k").id)


def retried(kernel: Kernel, lease: LeaseKey) -> LeaseKey:
    """The first attempt of the fork that retries it."""
    kernel.agent.fail(lease, "boom")
    _, claim = kernel.retry(AGENT, "k", lease.execution_id)
    assert claim is not None
    return claim.lease


def test_an_open_step_that_must_not_run_twice_has_an_unknown_outcome(kernel: Kernel) -> None:
    """In the fork it has ended so, before anything else is asked, and an equal call is refused."""
    lease = begin(kernel)
    perform(kernel, lease, call("a"), 1)
    kernel.agent.submit(lease, once())
    fork = retried(kernel, lease)
    assert kinds(kernel, fork.execution_id).count("step.failed") == 1
    met = kernel.agent.submit(fork, once())
    assert (met.decision, met.error["reason"]) == ("replay", "indeterminate")
    again = kernel.agent.submit(fork, once())
    assert (again.decision, again.rule_id) == ("denied", "__indeterminate_retry")
    (source,) = [
        step.status for step in kernel.list_steps(lease.execution_id) if step.target == "charge"
    ]
    assert source == "executing"


def test_an_open_step_that_may_run_again_does(kernel: Kernel) -> None:
    """As a new step of the fork."""
    lease = begin(kernel)
    kernel.agent.submit(lease, call("a"))
    fork = retried(kernel, lease)
    assert kernel.list_steps(fork.execution_id) == []
    assert kernel.agent.submit(fork, call("a")).decision == "proceed"


def test_the_second_to_retry_finds_the_fork_of_the_first(kernel: Kernel) -> None:
    """Who compares with the failure that it saw changes nothing when the key has moved on."""
    lease = begin(kernel)
    fork = retried(kernel, lease)
    for _ in range(2):
        found, claim = kernel.retry(AGENT, "k", lease.execution_id)
        assert (found.id, claim) == (fork.execution_id, None)
        if not found.status.terminal:
            kernel.agent.fail(fork, "boom")
    assert len(kernel.list().executions) == 2


def test_what_is_not_kept_cannot_be_retried(kernel: Kernel) -> None:
    """The key names nothing."""
    with pytest.raises(NotFoundError, match="'k'"):
        kernel.retry(AGENT, "k", "gone")


def test_a_fork_copies_thousands_of_steps(kernel: Kernel) -> None:
    """More events than one statement can write."""
    lease = begin(kernel)
    for n in range(600):
        perform(kernel, lease, call("a", n), n)
    fork = retried(kernel, lease)
    assert len(kernel.list_steps(fork.execution_id)) == 600
    met = kernel.agent.submit(fork, call("a", 599))
    assert (met.decision, met.result) == ("replay", 599)
    seqs = [event.event_seq for event in kernel.events(fork.execution_id, 2000, limit=1000)]
    assert seqs == list(range(2001, 2001 + len(seqs)))
    assert seqs


def test_copies_keep_what_was_used_up(kernel: Kernel) -> None:
    """A budget counts the tokens of the model calls that a fork replays."""
    budget = "{decision: allow, budget: {max_tokens: 50}}"
    kernel.set_policy(
        AGENT, f"default_action: allow\nrules: [{{id: r, when: {{target: m}}, then: {budget}}}]"
    )
    lease = begin(kernel)
    answer = {"status": 200, "body": '{"usage": {"prompt_tokens": 30, "completion_tokens": 25}}'}
    perform(kernel, lease, call("m")._replace(kind="llm_call"), answer)
    fork = retried(kernel, lease)
    decisions = [kernel.agent.submit(fork, call("m")._replace(kind="llm_call")) for _ in range(2)]
    assert [it.decision for it in decisions] == ["replay", "denied"]


def test_steps_within_steps_stay_so(kernel: Kernel) -> None:
    """A replay of the outer one passes over what was called in its body."""
    lease = begin(kernel)
    outer = kernel.agent.submit(lease, call("outer"))
    perform(kernel, lease, call("inner")._replace(parent=outer.step_id), 1)
    kernel.agent.complete_step(lease, outer.step_id, "2")
    fork = retried(kernel, lease)
    assert kernel.agent.submit(fork, call("outer")).decision == "replay"
    assert kernel.agent.submit(fork, call("inner")).decision == "proceed"


def test_a_fork_has_a_deadline_of_its_own(path_of_deadlines: Kernel, clock: ManualClock) -> None:
    """It counts from when it was forked."""
    kernel = path_of_deadlines
    execution = kernel.create(AGENT)
    clock.advance(40)
    fork = kernel.fork(execution.id, 1)
    clock.advance(40)
    assert kernel.get(execution.id).failure_reason == "deadline_exceeded"
    assert kernel.get(fork.id).status == "running"
    clock.advance(40)
    assert kernel.get(fork.id).failure_reason == "deadline_exceeded"


@pytest.fixture
def path_of_deadlines(kernel: Kernel, clock: ManualClock) -> Kernel:
    return Kernel(kernel.path, deadline=60, clock=clock)
