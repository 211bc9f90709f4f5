"""Rate limits: buckets in the file, shared by whoever uses it (protocol.md 11.7)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel

from .moves import AGENT, call, start

MOST = 5


def limited(kernel: Kernel, window: str = "100s", more: str = "") -> None:
    """At most five calls of the agent in the window."""
    limit = f"rate_limit: {{max_calls: {MOST}, window: {window}, per_what: agent{more}}}"
    kernel.set_policy(AGENT, f"rules: [{{id: all, then: {{decision: allow, {limit}}}}}]")


def taken(kernel: Kernel, calls: int = 2 * MOST) -> int:
    """How many of so many calls proceed."""
    lease = start(kernel)
    return [kernel.agent.submit(lease, call()).decision for _ in range(calls)].count("proceed")


def test_threads_together_get_no_more_than_there_is(kernel: Kernel) -> None:
    """Counting and deciding are one transaction."""
    limited(kernel)
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda _: taken(kernel, 3), range(8))) == MOST


@pytest.mark.parametrize(("seconds", "tokens"), [(0, 0), (19, 0), (20, 1), (59, 2), (10_000, 5)])
def test_a_bucket_fills_up_evenly(
    kernel: Kernel, clock: ManualClock, seconds: float, tokens: int
) -> None:
    """One token for each fifth of the window, and never more than there were."""
    limited(kernel)
    assert taken(kernel) == MOST
    clock.advance(seconds)
    assert taken(kernel) == tokens


def test_asking_in_vain_costs_nothing(kernel: Kernel, clock: ManualClock) -> None:
    """What has run in by then is kept."""
    limited(kernel)
    taken(kernel)
    for _ in range(4):
        clock.advance(5)
        assert taken(kernel, 1) == (clock.monotonic() == 1020)


def test_a_bucket_outlives_the_kernel(path: Path, clock: ManualClock) -> None:
    """A restart refills nothing, and a reboot only what has run in by the wall clock."""
    with Kernel(path, clock=clock) as kernel:
        kernel.register_agent(AGENT)
        limited(kernel)
        assert taken(kernel) == MOST
    with Kernel(path, clock=clock) as kernel:
        assert taken(kernel) == 0
    clock.advance(40)
    clock.reboot("boot-2")
    with Kernel(path, clock=clock) as kernel:
        assert taken(kernel) == 2


def test_c36_a_stepped_wall_clock_fills_nothing(kernel: Kernel, clock: ManualClock) -> None:
    """Nor does it empty anything."""
    limited(kernel)
    assert taken(kernel) == MOST
    clock.step_wall(3600)
    assert taken(kernel) == 0
    clock.step_wall(-7200)
    clock.advance(20)
    assert taken(kernel) == 1


@pytest.mark.parametrize("limit", ["max_calls: 0, window: 1h", "max_calls: 1, window: 0s"])
def test_a_limit_of_nothing_is_none(kernel: Kernel, limit: str) -> None:
    """As the protocol has it."""
    bundle = f"rules: [{{id: a, then: {{decision: allow, rate_limit: {{{limit}}}}}}}]"
    kernel.set_policy(AGENT, bundle)
    assert taken(kernel, 3) == 3


def test_rules_share_no_bucket(kernel: Kernel) -> None:
    """Each has its own, by its id."""
    rules = ", ".join(
        f"{{id: {name}, when: {{target: {name}}}, then: {{decision: allow,"
        " rate_limit: {max_calls: 1, window: 1h, per_what: global}}}"
        for name in ("a", "b")
    )
    kernel.set_policy(AGENT, f"rules: [{rules}]")
    lease = start(kernel)
    decisions = [kernel.agent.submit(lease, call(name)).decision for name in "aabb"]
    assert decisions == ["proceed", "rate_limited", "proceed", "rate_limited"]
