"""Random histories of executions that spawn, sleep and share sessions: what holds after each
move."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebuno_sync.clock import ManualClock
from rebuno_sync.errors import APIError
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import Execution, LeaseKey, Wake

from .moves import AGENT, call, kinds

TARGETS = ["free", "ask"]
SESSIONS = [None, "one", "two"]
ASK = """
default_action: allow
rules:
  - {id: ask, when: {target: ask}, then: {decision: require_approval}}
"""
ENDS = ["step.succeeded", "step.failed", "step.denied", "step.cancelled"]

numbers = st.integers(0, 9)
moves = st.one_of(
    st.tuples(st.just("create"), st.sampled_from(SESSIONS)),
    st.tuples(st.just("submit"), numbers, st.sampled_from(TARGETS)),
    st.tuples(st.just("spawn"), numbers, numbers, st.sampled_from(SESSIONS)),
    st.tuples(st.just("suspend"), numbers),
    st.tuples(st.just("sleep"), numbers, numbers, st.sampled_from([1, 10, 100])),
    st.tuples(st.just("complete"), numbers, st.booleans()),
    st.tuples(st.just("settle"), numbers, numbers),
    st.tuples(st.sampled_from(["cancel", "grant"]), numbers),
    st.tuples(st.just("time"), st.sampled_from([1, 10, 121])),
)


class Play:
    """Executions by the order of their creation. Refusals are answers like others."""

    def __init__(self, kernel: Kernel, clock: ManualClock) -> None:
        self.kernel = kernel
        self.clock = clock
        kernel.register_agent(AGENT)
        kernel.set_policy(AGENT, ASK)
        self.ids: list[str] = [kernel.create(AGENT).id]
        self.leases: dict[str, LeaseKey] = {}

    def move(self, name: str, *given: object) -> None:
        with suppress(APIError):
            getattr(self, name)(*given)

    def lease(self, number: int) -> LeaseKey:
        """The lease of an execution, the next one if it is free; a stale one otherwise."""
        execution_id = self.ids[number % len(self.ids)]
        claim = self.kernel.claim(execution_id)
        if claim is not None:
            self.leases[execution_id] = claim.lease
        nothing = LeaseKey(execution_id, "0" * 36, 1)
        return self.leases.get(execution_id, nothing)

    def open_step(self, lease: LeaseKey, number: int) -> str:
        steps = self.kernel.list_steps(lease.execution_id)
        open_ = [it.step_id for it in steps if it.status == "executing"]
        return open_[number % len(open_)] if open_ else "0" * 64

    def create(self, session: str | None) -> None:
        self.ids.append(self.kernel.create(AGENT, session=session).id)

    def submit(self, number: int, target: str) -> None:
        self.kernel.agent.submit(self.lease(number), call(target))

    def spawn(self, number: int, step: int, session: str | None) -> None:
        lease = self.lease(number)
        spawned_by = {
            "execution_id": lease.execution_id,
            "step_id": self.open_step(lease, step),
        }
        child = self.kernel.create(AGENT, session=session, spawned_by=spawned_by).id
        if child not in self.ids:
            self.ids.append(child)

    def suspend(self, number: int) -> None:
        self.kernel.agent.suspend(self.lease(number))

    def sleep(self, number: int, step: int, seconds: int) -> None:
        lease = self.lease(number)
        self.kernel.agent.suspend(lease, Wake(self.open_step(lease, step), seconds))

    def complete(self, number: int, well: bool) -> None:
        lease, port = self.lease(number), self.kernel.agent
        port.complete(lease, "1") if well else port.fail(lease, "it went wrong")

    def settle(self, number: int, step: int) -> None:
        lease = self.lease(number)
        self.kernel.agent.complete_step(lease, self.open_step(lease, step), "1")

    def cancel(self, number: int) -> None:
        self.kernel.cancel(self.ids[number % len(self.ids)])

    def grant(self, number: int) -> None:
        pending = self.kernel.list_approvals()
        if pending:
            self.kernel.grant_approval(pending[number % len(pending)].id)

    def time(self, seconds: int) -> None:
        self.clock.advance(seconds)

    # -- what holds

    def check(self) -> None:
        """The invariants of protocol.md 9.2, 9.4, 9.7 and 10."""
        found = {execution_id: self.kernel.get(execution_id) for execution_id in self.ids}
        approvals = {it.step_id for it in self.kernel.list_approvals()}
        asked = {it.spawned_by["step_id"]: it for it in found.values() if it.spawned_by is not None}
        for execution in found.values():
            self.check_one(execution, approvals, asked)
            above = execution.spawned_by and found[execution.spawned_by["execution_id"]]
            if above and not execution.status.terminal:
                assert not above.status.terminal, "a subagent outlives its parent"
        for session in SESSIONS[1:]:
            mine = [it for it in found.values() if it.session == session]
            active = [it for it in mine if it.status in ("running", "blocked")]
            waiting = [it for it in mine if it.status == "pending"]
            assert len(active) <= 1
            assert active or not waiting, "nobody runs, and somebody waits"
            assert all(it.id < other.id for it in active for other in waiting)

    def check_one(
        self, execution: Execution, approvals: set[str], asked: dict[str, Execution]
    ) -> None:
        steps = self.kernel.list_steps(execution.id)
        executing = {it.step_id for it in steps if it.status == "executing"}
        waits = {it.step_id for it in steps} & approvals
        waits |= executing & asked.keys()
        if execution.status == "blocked":
            live = [it for it in asked.values() if not it.status.terminal]
            spawned = [it for it in live if (it.spawned_by or {})["execution_id"] == execution.id]
            sleeps = "sleeping" in self.reasons(execution)
            assert waits or spawned or sleeps, "it is blocked, and nothing wakes it"
        if not execution.status.terminal:
            ended = {step_id for step_id, it in asked.items() if it.status.terminal}
            assert not executing & ended, "a subagent has ended, and its step has not"
        events = self.kernel.events(execution.id, limit=1000)
        assert [event.event_seq for event in events] == list(range(1, len(events) + 1))
        ends = Counter(event.payload["step_id"] for event in events if event.type in ENDS)
        assert dict(ends) == {step.step_id: 1 for step in steps if step.status.terminal}
        counts = Counter(kinds(self.kernel, execution.id))
        blocked, resumed = counts["execution.blocked"], counts["execution.resumed"]
        if not execution.status.terminal:
            assert blocked - resumed == (execution.status == "blocked")

    def reasons(self, execution: Execution) -> list[str]:
        events = self.kernel.events(execution.id, limit=1000)
        blocks = [it.payload for it in events if it.type == "execution.blocked"]
        return [it.get("reason", "") for it in blocks[-1:]]


@settings(max_examples=40, deadline=None)
@given(st.lists(moves, max_size=40))
def test_nobody_waits_for_ever_and_nobody_overtakes(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[object, ...]]
) -> None:
    """Blocked only while something will wake it, subagents end with their parents and settle their
    steps, a session has one execution that runs, the log has no gap."""
    path: Path = tmp_path_factory.mktemp("play") / "kernel.db"
    clock = ManualClock()
    with Kernel(path, clock=clock, max_attempts=1000) as kernel:
        play = Play(kernel, clock)
        for name, *given_ in history:
            play.move(str(name), *given_)
            play.check()
        clock.advance(1000)
        play.check()
        slept = [it for it in map(kernel.get, play.ids) if it.status == "blocked"]
        assert all(play.reasons(it) != ["sleeping"] or _waits(kernel, it) for it in slept)


def _waits(kernel: Kernel, execution: Execution) -> bool:
    """Whether something other than time holds it up."""
    spawned = [it.spawned_by for it in kernel.list(limit=200).executions if it.spawned_by]
    asks = any(it.execution_id == execution.id for it in kernel.list_approvals())
    return asks or any(it["execution_id"] == execution.id for it in spawned)
