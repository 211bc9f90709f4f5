"""Random histories of a whole kernel: everything that agents and operators can ask for, in any
order, and what holds after each of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.folded import Story, check_file_of, check_grown, check_story, story
from support.memory import quick_folder

from rebuno_sync.clock import ManualClock
from rebuno_sync.errors import APIError, NotFoundError
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import (
    Capture,
    ExecutionStatus,
    ForkPoints,
    Idempotency,
    LeaseKey,
    Proposal,
    Registration,
    Wake,
)

from .moves import AGENT

DAY = 86400.0

POLICY = """
default_action: allow
rules:
  - id: ask
    when: {target: ask}
    then: {decision: require_approval, approval_config: {timeout: 90s}}
  - id: bob
    when: {target: bob}
    then: {decision: require_approval, approval_config: {approvers: [bob]}}
  - {id: no, when: {target: "no"}, then: {decision: deny, reason: not here}}
  - id: seldom
    when: {target: seldom}
    then: {decision: allow, rate_limit: {max_calls: 1, window: 60s, max_wait: 40s}}
"""
TARGETS = ["free", "free", "ask", "bob", "no", "seldom"]
SESSIONS = [None, None, "one", "two"]

numbers = st.integers(0, 20)


class Seen(NamedTuple):
    """What was found of one execution."""

    story: Story
    points: ForkPoints


class Histories(RuleBasedStateMachine):
    """One file, and whoever asks for something. A refusal is an answer like others, and changes
    nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = quick_folder()
        self.clock = ManualClock()
        self.path = Path(self.folder.name) / "kernel.db"
        self.kernel = self.open()
        self.kernel.register_agent(AGENT)
        self.kernel.set_policy(AGENT, POLICY)
        self.ids: list[str] = []
        self.leases: dict[str, LeaseKey] = {}
        self.seen: dict[str, Seen] = {}
        self.tokens: dict[str, bool] = {}
        """Whether each lets somebody in."""
        self.newest: dict[str, str] = {}
        """The token of each API key."""
        for key in (None, "k1"):
            self.create(session=None, key=key)

    @initialize(calls=st.lists(st.sampled_from(TARGETS), max_size=3), disk=st.booleans())
    def begin(self, calls: list[str], disk: bool) -> None:
        """Two executions that are in the middle of something."""
        for number in (0, 1):
            if disk:
                self.register(number, "d", 2)
            self.work(number, ["free"])
            for call in calls:
                self.submit(number, call, strict=False, disk=disk)

    def open(self) -> Kernel:
        return Kernel(self.path, clock=self.clock, max_attempts=4, deadline=50_000.0)

    def teardown(self) -> None:
        self.kernel.close()
        self.folder.cleanup()

    # -- who and what

    def tried(self, ask: Callable[[], object]) -> None:
        """Ask, after what time has brought about; a refusal may not have changed anything."""
        before = {execution_id: self.look(execution_id) for execution_id in self.ids}
        try:
            ask()
        except APIError:
            assert {it: self.look(it) for it in self.ids} == before, "a refusal has an effect"

    def look(self, execution_id: str) -> Seen:
        return Seen(story(self.kernel, execution_id), self.kernel.fork_points(execution_id))

    def chosen(self, number: int) -> str:
        return self.ids[-1 - number % len(self.ids)]

    def lease(self, number: int) -> LeaseKey:
        """The next attempt's, if one is due; else the last one, whatever that is worth."""
        execution_id = self.chosen(number)
        claim = self.kernel.claim(execution_id)
        if claim is not None:
            self.leases[execution_id] = claim.lease
        nothing = LeaseKey(execution_id, "0" * 36, 1)
        return self.leases.get(execution_id, nothing)

    def step(self, number: int) -> tuple[LeaseKey, str]:
        """A step, with a lease of its execution: one that runs if there is one anywhere."""
        steps = [it for execution_id in self.ids for it in self.kernel.list_steps(execution_id)]
        steps = [it for it in steps if it.status == "executing"] or steps
        if not steps:
            return self.lease(number), "0" * 64
        step = steps[-1 - number % len(steps)]
        return self.lease(-1 - self.ids.index(step.execution_id)), step.step_id

    # -- operators

    @precondition(lambda self: len(self.ids) < 8)
    @rule(session=st.sampled_from(SESSIONS), key=st.sampled_from([None, None, "k1", "k2"]))
    def create(self, session: str | None, key: str | None) -> None:
        execution = self.kernel.create(AGENT, {"n": 1}, session=session, idempotency_key=key)
        self.know(execution.id)

    def know(self, execution_id: str) -> None:
        """Remember it, unless it was removed long ago."""
        if execution_id not in self.ids and self.kernel.events(execution_id):
            self.ids.append(execution_id)

    @precondition(lambda self: len(self.ids) < 8 and self.completed())
    @rule(number=numbers, session=st.sampled_from(SESSIONS))
    def go_on_from(self, number: int, session: str | None) -> None:
        done = self.completed() or self.ids
        parent = done[number % len(done)]
        self.tried(
            lambda: self.know(
                self.kernel.create(AGENT, session=session, parent_execution_id=parent).id
            )
        )

    def completed(self) -> list[str]:
        return [it for it in self.ids if self.kernel.get(it).status is ExecutionStatus.COMPLETED]

    @rule(number=numbers)
    def cancel(self, number: int) -> None:
        self.tried(lambda: self.kernel.cancel(self.chosen(number)))

    @rule(number=numbers, granted=st.booleans(), who=st.sampled_from(["", "bob"]))
    def decide(self, number: int, granted: bool, who: str) -> None:
        """On any approval that was ever asked for, most often a pending one."""
        found = [
            it for status in ("pending", "granted", "expired") for it in self.approvals(status)
        ]
        if found:
            approval_id = found[number % len(found)]
            way = self.kernel.grant_approval if granted else self.kernel.deny_approval
            self.tried(lambda: way(approval_id, who))

    def approvals(self, status: str) -> list[str]:
        return [it.id for it in self.kernel.list_approvals(status)]

    @precondition(lambda self: len(self.ids) < 8)
    @rule(number=numbers, at=st.integers(0, 12), session=st.sampled_from(SESSIONS))
    def fork(self, number: int, at: int, session: str | None) -> None:
        source = self.chosen(number)

        def forked() -> None:
            fork = self.kernel.fork(source, at, session=session or "")
            self.know(fork.id)
            self.check_fork(source, fork.id)

        self.tried(forked)

    def check_fork(self, source: str, fork: str) -> None:
        """What a fork begins with is what was settled in its source."""
        there = {
            (it.kind, it.target, it.args_hash, it.occurrence): it
            for it in self.kernel.list_steps(source)
        }
        for step in self.kernel.list_steps(fork):
            original = there[step.kind, step.target, step.args_hash, step.occurrence]
            assert step.status.terminal
            assert (step.status, step.result, step.error) == (
                original.status,
                original.result,
                original.error,
            )

    @rule(key=st.sampled_from(["k1", "k2"]))
    def retry(self, key: str) -> None:
        """Try a failed execution again, under its key."""
        found = self.kernel.find(AGENT, key)
        if found is None or found.status is not ExecutionStatus.FAILED or len(self.ids) >= 8:
            return

        def retried() -> None:
            fork, claim = self.kernel.retry(AGENT, key, found.id)
            self.know(fork.id)
            if claim is not None:
                self.leases[fork.id] = claim.lease

        self.tried(retried)

    # -- agents

    @rule(number=numbers, call=st.sampled_from(TARGETS), strict=st.booleans(), disk=st.booleans())
    def submit(self, number: int, call: str, strict: bool, disk: bool) -> None:
        proposal = Proposal(
            "tool_call",
            call,
            "null",
            Idempotency.AT_MOST_ONCE if strict else Idempotency.SAFE_TO_RETRY,
            resources=("disk",) if disk else (),
        )
        lease = self.lease(number)
        self.tried(lambda: self.kernel.agent.submit(lease, proposal))

    @rule(number=numbers, calls=st.lists(st.sampled_from(TARGETS), min_size=1, max_size=4))
    def work(self, number: int, calls: list[str]) -> None:
        """Some calls, one after another, as long as they proceed."""
        lease, port = self.lease(number), self.kernel.agent

        def worked() -> None:
            for n, target in enumerate(calls):
                decision = port.submit(lease, Proposal("tool_call", target, str(n)))
                if decision.decision != "proceed":
                    break
                port.complete_step(lease, decision.step_id, str(n))

        with suppress(APIError):
            worked()

    @rule(number=numbers, well=st.booleans())
    def settle(self, number: int, well: bool) -> None:
        port = self.kernel.agent
        lease, step_id = self.step(number)
        way = port.complete_step if well else port.fail_step
        self.tried(lambda: way(lease, step_id, '{"reason": "indeterminate"}'))

    @rule(number=numbers, attempt=st.integers(1, 3), begins=st.booleans())
    def try_again(self, number: int, attempt: int, begins: bool) -> None:
        port = self.kernel.agent
        lease, step_id = self.step(number)
        if begins:
            self.tried(lambda: port.begin_try(lease, step_id, attempt))
        else:
            self.tried(lambda: port.retrying(lease, step_id, attempt, '"no"', 1.0))

    @precondition(lambda self: len(self.ids) < 8)
    @rule(number=numbers, session=st.sampled_from(SESSIONS))
    def spawn(self, number: int, session: str | None) -> None:
        lease, step_id = self.step(number)
        spawned_by = {"execution_id": lease.execution_id, "step_id": step_id}
        self.tried(
            lambda: self.know(self.kernel.create(AGENT, session=session, spawned_by=spawned_by).id)
        )

    @rule(number=numbers, seconds=st.sampled_from([0, 0, 30]))
    def suspend(self, number: int, seconds: int) -> None:
        lease, step_id = self.step(number)
        wake = Wake(step_id, seconds) if seconds else None
        self.tried(lambda: self.kernel.agent.suspend(lease, wake))

    @rule(number=numbers, interrupted=st.booleans())
    def release(self, number: int, interrupted: bool) -> None:
        lease = self.lease(number)
        self.tried(lambda: self.kernel.agent.release(lease, interrupted=interrupted))

    @rule(number=numbers, well=st.booleans())
    def end(self, number: int, well: bool) -> None:
        lease, port = self.lease(number), self.kernel.agent
        self.tried(lambda: port.complete(lease, "1", "2") if well else port.fail(lease, "no"))

    @rule(number=numbers, driver=st.sampled_from(["d", "d", "e"]), every=st.sampled_from([0, 2]))
    def register(self, number: int, driver: str, every: int) -> None:
        wanted = Registration("disk", driver, every_steps=every)
        lease = self.lease(number)
        self.tried(lambda: self.kernel.agent.resources.register(lease, wanted))

    @rule(number=numbers, where=st.sampled_from(['"here"', '"there"']))
    def bind(self, number: int, where: str) -> None:
        lease = self.lease(number)
        self.tried(lambda: self.kernel.agent.resources.bind(lease, "disk", where))

    @rule(number=numbers, generation=st.integers(0, 2))
    def capture(self, number: int, generation: int) -> None:
        captured = [Capture("disk", generation, "kept")]
        lease = self.lease(number)
        self.tried(lambda: self.kernel.agent.resources.keep(lease, captured, []))

    # -- API keys

    @precondition(lambda self: len(self.newest) < 3)
    @rule()
    def create_key(self) -> None:
        key = self.kernel.create_key("one", ["executions:read"])
        self.newest[key.id] = key.token or ""
        self.tokens[self.newest[key.id]] = True

    @precondition(lambda self: self.newest)
    @rule(number=numbers, revokes=st.booleans())
    def change_key(self, number: int, revokes: bool) -> None:
        key_id = list(self.newest)[number % len(self.newest)]
        token = self.newest[key_id]
        if revokes:
            self.kernel.revoke_key(key_id)
        elif self.tokens[token]:
            self.newest[key_id] = self.kernel.rotate_key(key_id).token or ""
            self.tokens[self.newest[key_id]] = True
        else:
            with pytest.raises(APIError):
                self.kernel.rotate_key(key_id)
        self.tokens[token] = False

    # -- time, and what happens to a machine

    @rule(seconds=st.sampled_from([1, 35, 95, 130, 1000]))
    def time(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @precondition(lambda self: len(self.ids) > 5)
    @rule()
    def retention(self) -> None:
        """A day later. What is left of others may name what is gone (protocol.md 9.8)."""
        self.clock.advance(DAY + 1)
        self.kernel.get(self.ids[0])
        self.clock.advance(DAY + 1)
        self.kernel.core.retention.sweep()
        self.seen.clear()
        self.ids = [it for it in self.ids if self.is_there(it)]
        if not self.ids:
            self.create(session=None, key=None)

    def is_there(self, execution_id: str) -> bool:
        try:
            return bool(self.kernel.events(execution_id))
        except NotFoundError:
            return False

    @rule()
    def reopen(self) -> None:
        """Another process has the file from now on, and is told the same."""
        before = {execution_id: self.look(execution_id) for execution_id in self.ids}
        listed = self.kernel.list(), self.kernel.list_keys(), self.kernel.agents()
        self.kernel.close()
        self.kernel = self.open()
        assert {execution_id: self.look(execution_id) for execution_id in self.ids} == before
        assert (self.kernel.list(), self.kernel.list_keys(), self.kernel.agents()) == listed

    # -- what holds

    @invariant()
    def the_logs_tell_everything(self) -> None:
        """And they only grow."""
        for execution_id in self.ids:
            now = self.look(execution_id)
            check_story(now.story)
            if (before := self.seen.get(execution_id)) is not None:
                check_grown(before.story, now.story)
                _check_points(before.points, now.points)
            self.seen[execution_id] = now
        check_file_of(self.kernel)

    @invariant()
    def tokens_let_in_who_may(self) -> None:
        """The newest of each key that was not revoked, and no other."""
        let_in = {token: self.kernel.core.keys.scopes_of(token) for token in self.tokens}
        assert {token: bool(scopes) for token, scopes in let_in.items()} == self.tokens


def _check_points(before: ForkPoints, after: ForkPoints) -> None:
    """Registrations stay, and captures too: what they cover ends once at most."""
    assert before.resources.items() <= after.resources.items()
    for one, other in zip(before.checkpoints, after.checkpoints, strict=False):
        ended = one.invalidated_seq is not None
        assert other == one if ended else other.checkpoint_ref == one.checkpoint_ref
    for one in after.checkpoints:
        assert one.invalidated_seq is None or one.covered_seq < one.invalidated_seq


def test_a_kernel_keeps_its_promises_in_any_order() -> None:
    """Logs say what the rest says and only grow, what ended stays, refusals leave nothing, a
    session runs one at a time, forks begin with what was settled, and reopening changes nothing."""
    run_state_machine_as_test(Histories, settings=settings(max_examples=10, stateful_step_count=40))


@pytest.mark.slow
def test_a_kernel_keeps_its_promises_in_many_orders() -> None:
    """The same, for longer."""
    run_state_machine_as_test(Histories, settings=settings(max_examples=20, stateful_step_count=60))
