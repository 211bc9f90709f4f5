"""What is decided without a database: the tables of lifecycle and policy."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rebuno_sync.kernel.lifecycle import (
    CLAIM_LIMIT,
    ExistingStep,
    accepts_outcome,
    backoff_seconds,
    claimable,
    exhausted,
    existing_step,
    fence_holds,
    live_execution,
)
from rebuno_sync.kernel.policy import INDETERMINATE_RETRY, PERMISSIVE, Action
from rebuno_sync.types import DispatchStatus, ExecutionStatus, StepStatus

EXISTING = {
    # The answer to a request that is safe_to_retry, and to one that is at_most_once.
    "proposed": ("start", "start"),
    "allowed": ("start", "start"),
    "denied": ("denied", "denied"),
    "awaiting_approval": ("blocked", "blocked"),
    "executing": ("repeat", "indeterminate"),
    "succeeded": ("replay", "replay"),
    "failed": ("replay", "replay"),
    "cancelled": ("repeat", "repeat"),
}


@pytest.mark.parametrize("status", StepStatus)
def test_every_status_of_a_step_has_an_answer(status: StepStatus) -> None:
    """A submit that meets a recorded step gets what protocol.md 7.3 says, by the request's
    idempotency.
    """
    answers = tuple(existing_step(status, at_most_once=strict) for strict in (False, True))
    assert answers == EXISTING[status]
    assert all(isinstance(answer, ExistingStep) for answer in answers)


@pytest.mark.parametrize("status", StepStatus)
def test_only_an_executing_step_takes_an_outcome(status: StepStatus) -> None:
    """Every other status refuses one (protocol.md 8.1)."""
    assert accepts_outcome(status) is (status == "executing")


def test_terminal_statuses() -> None:
    """Three statuses end an execution and four end a step; nothing else does."""
    assert {s for s in ExecutionStatus if s.terminal} == {"completed", "failed", "cancelled"}
    assert {s for s in ExecutionStatus if live_execution(s)} == {"pending", "running", "blocked"}
    assert {s for s in StepStatus if s.terminal} == {"succeeded", "failed", "denied", "cancelled"}


@pytest.mark.parametrize("status", [None, *DispatchStatus])
@pytest.mark.parametrize("attempts", list(itertools.product((1, 2), (1, 2))))
def test_the_fence(status: DispatchStatus | None, attempts: tuple[int, int]) -> None:
    """Both fences want the very attempt of a known dispatch; renewing also wants it in flight."""
    recorded, claimed = attempts
    matches = status is not None and recorded == claimed
    assert fence_holds(status, recorded, claimed, renewing=False) is matches
    assert fence_holds(status, recorded, claimed, renewing=True) is (
        matches and status == "in_flight"
    )


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("alive", [False, True])
@pytest.mark.parametrize("wait", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("status", DispatchStatus)
def test_what_can_be_claimed(
    status: DispatchStatus, wait: float, *, alive: bool, ended: bool
) -> None:
    """What waits, when it is due; what is in flight, when its lease or its owner has ended; nothing
    retired.
    """
    expected = {
        "pending": wait <= 0,
        "failed": wait <= 0,
        "in_flight": ended or not alive,
        "exhausted": False,
    }[status]
    found = claimable(status, due=100.0 + wait, now=100.0, lease_ended=ended, owner_alive=alive)
    assert found is expected


def test_exhaustion_counts_strikes_and_claims() -> None:
    """As many strikes as attempts allowed end a dispatch, and so do a thousand claims, whatever
    they did.
    """
    assert not exhausted(attempt=4, strikes=4, max_attempts=5)
    assert exhausted(attempt=5, strikes=5, max_attempts=5)
    assert not exhausted(attempt=CLAIM_LIMIT - 1, strikes=0, max_attempts=5)
    assert exhausted(attempt=CLAIM_LIMIT, strikes=0, max_attempts=5)
    assert CLAIM_LIMIT == 1000


def test_the_back_off_doubles_up_to_half_a_minute() -> None:
    """1, 2, 4, 8, 16 and then 30 seconds; jitter adds up to a quarter, after the cap."""
    assert [backoff_seconds(n, 0.0) for n in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]
    assert backoff_seconds(3, 0.5) == 4.5
    assert backoff_seconds(1000, 0.0) == 30
    assert backoff_seconds(1000, 0.999_999) < 37.5


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_a_back_off_is_bounded(attempt: int, random: float) -> None:
    """Whatever the attempt and the jitter, a wait is between its base and a quarter more."""
    base = backoff_seconds(attempt, 0.0)
    assert 1 <= base <= backoff_seconds(attempt, random) <= base * 1.25 <= 37.5


def test_the_permissive_policy() -> None:
    """Without a bundle everything is allowed, by the rule `permissive`."""
    assert PERMISSIVE.action is Action.ALLOW
    assert (PERMISSIVE.rule_id, PERMISSIVE.reason) == ("permissive", "")


def test_the_rule_against_unknown_outcomes() -> None:
    """It denies, with the protocol's rule and reason."""
    assert INDETERMINATE_RETRY.action is Action.DENY
    assert INDETERMINATE_RETRY.rule_id == "__indeterminate_retry"
    assert INDETERMINATE_RETRY.reason == "prior attempt outcome unknown; retry refused"
