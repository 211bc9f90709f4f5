"""Random histories of an execution whose steps need approvals: what holds after each move."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebuno_sync.clock import ManualClock
from rebuno_sync.errors import ConflictError
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import LeaseKey

from .moves import AGENT, call, kinds, once

ASK = """
default_action: allow
rules:
  - id: ask
    when: {target: "ask_*"}
    then: {decision: require_approval, approval_config: {timeout: 60s}}
  - id: seldom
    when: {target: seldom}
    then: {decision: allow, rate_limit: {max_calls: 1, window: 20s, max_wait: 30s}}
"""
TARGETS = ["free", "ask_a", "ask_b", "seldom"]
ENDS = ["step.succeeded", "step.failed", "step.denied", "step.cancelled"]

moves = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from(TARGETS), st.booleans()),
    st.tuples(st.sampled_from(["settle", "decide"]), st.integers(0, 9), st.booleans()),
    st.tuples(st.just("time"), st.sampled_from([5, 30, 61]), st.none()),
    st.tuples(st.sampled_from(["crash", "cancel"]), st.none(), st.none()),
)


class Play:
    """One execution, and whoever has a hand in it. Refusals are answers like others."""

    def __init__(self, kernel: Kernel, clock: ManualClock) -> None:
        self.kernel = kernel
        self.clock = clock
        kernel.register_agent(AGENT)
        kernel.set_policy(AGENT, ASK)
        self.execution_id = kernel.create(AGENT).id
        self.lease: LeaseKey | None = None
        self.approvals: list[str] = []

    def move(self, name: str, what: int | str | None, flag: bool | None) -> None:
        if self.lease is None:
            claim = self.kernel.claim(self.execution_id)
            self.lease = None if claim is None else claim.lease
        with suppress(ConflictError):
            getattr(self, name)(what, flag)

    def submit(self, target: str, strict: bool) -> None:
        if self.lease is None:
            return
        decision = self.kernel.agent.submit(self.lease, (once if strict else call)(target))
        if decision.approval_id:
            self.approvals.append(decision.approval_id)
        if decision.decision in ("blocked", "execution_terminal"):
            self.lease = None

    def settle(self, number: int, well: bool) -> None:
        steps = self.kernel.list_steps(self.execution_id)
        if self.lease is None or not steps:
            return
        step = steps[number % len(steps)]
        if step.status == "executing":
            port = self.kernel.agent
            (port.complete_step if well else port.fail_step)(self.lease, step.step_id, "1")

    def decide(self, number: int, grants: bool) -> None:
        if self.approvals:
            approval_id = self.approvals[number % len(self.approvals)]
            way = self.kernel.grant_approval if grants else self.kernel.deny_approval
            way(approval_id, "somebody")

    def time(self, seconds: int, _: None) -> None:
        self.clock.advance(seconds)

    def crash(self, *_: None) -> None:
        if self.lease is not None:
            self.clock.advance(121)
            self.lease = None

    def cancel(self, *_: None) -> None:
        self.kernel.cancel(self.execution_id)

    def check(self) -> None:
        """The invariants of protocol.md 5.5, 9.4, 10 and 12."""
        execution = self.kernel.get(self.execution_id)
        steps = self.kernel.list_steps(self.execution_id)
        pending = {approval.step_id for approval in self.kernel.list_approvals()}
        assert pending == {step.step_id for step in steps if step.status == "awaiting_approval"}
        assert (execution.status == "blocked") == bool(pending)
        events = self.kernel.events(self.execution_id, limit=1000)
        assert [event.event_seq for event in events] == list(range(1, len(events) + 1))
        ends = Counter(event.payload["step_id"] for event in events if event.type in ENDS)
        assert dict(ends) == {step.step_id: 1 for step in steps if step.status.terminal}
        counts = Counter(kinds(self.kernel, self.execution_id))
        assert counts["execution.blocked"] == counts["approval.requested"]
        decided = sum(counts[f"approval.{word}"] for word in ("granted", "denied", "expired"))
        assert counts["approval.requested"] == decided + len(pending)
        assert (
            counts["step.rate_limited"]
            >= counts["dispatch.queued"] - 1 - counts["execution.resumed"]
        )
        for approval_id in self.approvals:
            approval = self.kernel.get_approval(approval_id)
            assert (approval.decided_at is None) == (approval.status == "pending")


@settings(max_examples=40, deadline=None)
@given(st.lists(moves, max_size=30))
def test_an_execution_waits_for_what_is_undecided_and_for_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, object, bool | None]]
) -> None:
    """Blocked exactly while an approval is pending, every approval decided once, every step ended
    once, the log without a gap."""
    path: Path = tmp_path_factory.mktemp("play") / "kernel.db"
    clock = ManualClock()
    with Kernel(path, clock=clock, max_attempts=1000) as kernel:
        play = Play(kernel, clock)
        for name, what, flag in history:
            play.move(name, what, flag)  # type: ignore[arg-type]
            play.check()
