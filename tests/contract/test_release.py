"""Giving a lease back (protocol.md 17, ``release``)."""

from __future__ import annotations

from rebuno_sync.types import Renewal

from .deployments import MAX_ATTEMPTS, Deployment
from .moves import attempt, call, code_of, kinds, next_attempt, start
from .scenarios import scenario


@scenario("release")
def test_a_released_lease_is_due_at_once(on: Deployment) -> None:
    """The next attempt can be claimed without any time passing; the old one holds nothing."""
    lease = start(on)
    on.agent.release(lease)
    assert attempt(on, lease.execution_id) == lease._replace(attempt=2)
    assert on.agent.renew([lease]) == [Renewal.SUPERSEDED]
    assert code_of(lambda: on.agent.complete(lease, "1")) == "lease_superseded"


@scenario("release")
def test_a_release_takes_its_strike_back(on: Deployment) -> None:
    """An attempt that was given back counts for nothing, however often it happens."""
    lease = start(on)
    for _ in range(3 * MAX_ATTEMPTS):
        on.agent.release(lease)
        lease = attempt(on, lease.execution_id)
    on.agent.complete(lease, "null")


@scenario("release")
def test_a_release_takes_back_no_strike_but_its_own(on: Deployment) -> None:
    """The attempts that died before it still count."""
    lease = start(on)
    for _ in range(MAX_ATTEMPTS - 1):
        lease = next_attempt(on, lease)
    on.agent.release(lease)
    lease = attempt(on, lease.execution_id)
    on.expire(lease)
    assert on.lease(lease.execution_id) is None
    assert on.operator.get(lease.execution_id).failure_reason == "dispatch_exhausted"


@scenario("release")
def test_an_interrupted_release_is_due_after_the_back_off(on: Deployment) -> None:
    """It cannot be claimed at once, and can be when the back-off is over."""
    lease = start(on)
    on.agent.release(lease, interrupted=True)
    assert on.lease(lease.execution_id) is None
    on.pass_back_off()
    assert attempt(on, lease.execution_id) == lease._replace(attempt=2)


@scenario("release")
def test_an_interrupted_release_keeps_its_strike(on: Deployment) -> None:
    """Attempts that are interrupted without having settled anything exhaust the dispatch."""
    lease = start(on)
    for _ in range(MAX_ATTEMPTS - 1):
        on.agent.release(lease, interrupted=True)
        on.pass_back_off()
        lease = attempt(on, lease.execution_id)
    on.agent.release(lease, interrupted=True)
    on.pass_back_off()
    assert on.lease(lease.execution_id) is None
    assert on.operator.get(lease.execution_id).failure_reason == "dispatch_exhausted"


@scenario("release")
def test_an_interrupted_release_may_cost_no_strike(on: Deployment) -> None:
    """Due after a back-off, which grows; never exhausted by the number of strikes."""
    lease = start(on)
    for _ in range(MAX_ATTEMPTS + 2):
        on.agent.release(lease, interrupted=True, strike=False)
        assert on.lease(lease.execution_id) is None
        on.pass_back_off()
        lease = attempt(on, lease.execution_id)
    on.agent.complete(lease, "null")


@scenario("release")
def test_a_release_writes_no_event(on: Deployment) -> None:
    """The log tells of attempts when they begin, not when they are given back."""
    lease = start(on)
    before = kinds(on, lease.execution_id)
    on.agent.release(lease)
    assert kinds(on, lease.execution_id) == before


@scenario("release")
def test_steps_stay_open_when_their_lease_is_given_back(on: Deployment) -> None:
    """A released attempt's open steps are met by the next one."""
    lease = start(on)
    step_id = on.agent.submit(lease, call()).step_id
    on.agent.release(lease)
    assert on.operator.get_step(lease.execution_id, step_id).status == "executing"
    later = attempt(on, lease.execution_id)
    assert on.agent.submit(later, call()).step_id == step_id


@scenario("release")
def test_a_lease_is_given_back_once(on: Deployment) -> None:
    """A second release is refused: the lease is gone already."""
    lease = start(on)
    on.agent.release(lease)
    assert code_of(lambda: on.agent.release(lease)) == "lease_superseded"
