"""How long a dispatch is tried: strikes, claims, back-off."""

from __future__ import annotations

from pathlib import Path

import pytest

from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel.lifecycle import CLAIM_LIMIT

from .moves import AGENT, attempt, call, once, perform, start

LEASE = 120.0


def test_an_execution_that_only_crashes_ends_after_five_attempts(
    kernel: Kernel, clock: ManualClock
) -> None:
    """By default the sixth claim finds five silent deaths and fails the execution."""
    execution = kernel.create(AGENT)
    for number in range(1, 6):
        assert attempt(kernel, execution.id).attempt == number
        clock.advance(LEASE + 1)
    assert kernel.claim(execution.id) is None
    assert kernel.get(execution.id).failure_reason == "dispatch_exhausted"


@pytest.mark.parametrize("settle", ["complete", "fail", "indeterminate", "denied"])
def test_a_newly_settled_step_clears_the_strikes(
    path: Path, clock: ManualClock, settle: str
) -> None:
    """Whichever way a step ends, the attempts that died before it are forgiven."""
    with Kernel(path, max_attempts=2, clock=clock) as kernel:
        kernel.register_agent(AGENT)
        lease = start(kernel)
        if settle == "complete":
            perform(kernel, lease, call())
        elif settle == "fail":
            kernel.agent.fail_step(lease, kernel.agent.submit(lease, call()).step_id, "1")
        else:
            kernel.agent.submit(lease, once())
            kernel.agent.release(lease)
            lease = attempt(kernel, lease.execution_id)
            kernel.agent.submit(lease, once())
        if settle == "denied":
            clock.advance(LEASE + 1)
            lease = attempt(kernel, lease.execution_id)
            kernel.agent.submit(lease, once())
            assert kernel.agent.submit(lease, once()).decision == "denied"
        for _ in range(2):
            clock.advance(LEASE + 1)
            lease = attempt(kernel, lease.execution_id)
        clock.advance(LEASE + 1)
        assert kernel.claim(lease.execution_id) is None


def test_a_replay_clears_no_strike(path: Path, clock: ManualClock) -> None:
    """Meeting what is recorded, or starting a step, is no progress."""
    with Kernel(path, max_attempts=2, clock=clock) as kernel:
        kernel.register_agent(AGENT)
        lease = start(kernel)
        perform(kernel, lease, call())
        for _ in range(2):
            clock.advance(LEASE + 1)
            lease = attempt(kernel, lease.execution_id)
            assert kernel.agent.submit(lease, call()).decision == "replay"
            kernel.agent.submit(lease, call("open"))
        clock.advance(LEASE + 1)
        assert kernel.claim(lease.execution_id) is None
        assert kernel.get(lease.execution_id).status == "failed"


def test_a_repeated_outcome_clears_no_strike(path: Path, clock: ManualClock) -> None:
    """An outcome that is recorded already is not settled anew."""
    with Kernel(path, max_attempts=2, clock=clock) as kernel:
        kernel.register_agent(AGENT)
        lease = start(kernel)
        step_id = perform(kernel, lease, call())
        for _ in range(2):
            clock.advance(LEASE + 1)
            lease = attempt(kernel, lease.execution_id)
            assert kernel.agent.complete_step(lease, step_id, "2").decision == "replay"
        clock.advance(LEASE + 1)
        assert kernel.claim(lease.execution_id) is None


def test_a_thousand_claims_end_anything(kernel: Kernel) -> None:
    """A run that is given back for ever, without a single strike, ends all the same."""
    execution = kernel.create(AGENT)
    for number in range(1, CLAIM_LIMIT + 1):
        lease = attempt(kernel, execution.id)
        assert lease.attempt == number
        kernel.agent.release(lease)
    assert kernel.claim(execution.id) is None
    assert kernel.get(execution.id).failure_reason == "dispatch_exhausted"


def test_interruptions_back_off_longer_and_longer(path: Path, clock: ManualClock) -> None:
    """An interrupted attempt is due after 1, 2, 4... seconds and up to a quarter more, by its
    strikes.
    """
    with Kernel(path, max_attempts=9, clock=clock) as kernel:
        kernel.register_agent(AGENT)
        lease = start(kernel)
        for base in (1, 2, 4, 8, 16, 30, 30):
            kernel.agent.release(lease, interrupted=True)
            clock.advance(base - 0.001)
            assert kernel.claim(lease.execution_id) is None
            clock.advance(base * 0.25 + 0.002)
            lease = attempt(kernel, lease.execution_id)


def test_progress_shortens_the_back_off(path: Path, clock: ManualClock) -> None:
    """An interruption after a newly settled step backs off like a first one."""
    with Kernel(path, max_attempts=9, clock=clock) as kernel:
        kernel.register_agent(AGENT)
        lease = start(kernel)
        for _ in range(4):
            kernel.agent.release(lease, interrupted=True)
            clock.advance(38)
            lease = attempt(kernel, lease.execution_id)
        perform(kernel, lease, call())
        kernel.agent.release(lease, interrupted=True)
        clock.advance(1.251)
        assert kernel.claim(lease.execution_id) is not None


def test_an_agent_may_have_leases_of_its_own(path: Path, clock: ManualClock) -> None:
    """Its lease replaces the kernel's for its executions; one below ten seconds stands for the
    kernel's.
    """
    with Kernel(path, lease_timeout=60, clock=clock) as kernel:
        for agent, seconds, kept in (("short", 10, 10), ("tiny", 9.9, 60), ("plain", 0, 60)):
            kernel.register_agent(agent, lease_timeout_seconds=seconds)
            claim = kernel.claim(kernel.create(agent).id)
            assert claim is not None
            assert claim.lease_seconds == kept
            clock.advance(kept)
            assert kernel.claim(claim.lease.execution_id) is None
            clock.advance(0.001)
            assert kernel.claim(claim.lease.execution_id) is not None


@pytest.mark.parametrize(
    "settings", [{"lease_timeout": 0}, {"max_attempts": 0}, {"deadline": 0}, {"deadline": -1}]
)
def test_settings_must_be_positive(path: Path, settings: dict[str, int]) -> None:
    """A setting that can only be a mistake is refused, by its name, and no file is made."""
    (name,) = settings
    with pytest.raises(ValueError, match=name):
        Kernel(path, **settings)
    assert not path.exists()
