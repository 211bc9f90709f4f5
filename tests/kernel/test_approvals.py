"""Approvals: asked for once, decided once, resumed from (protocol.md 12)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.children import ChildScript
from support.waiting import wait_until

from rebuno_sync.clock import ManualClock
from rebuno_sync.errors import APIError, ConflictError, ExecutionCancelled
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import Approval, ApprovalStatus, LeaseKey

from .moves import AGENT, attempt, call, kinds, once, perform, start

ASK = """
default_action: allow
rules:
  - id: ask
    when: {target: charge}
    then:
      decision: require_approval
      reason: money
      approval_config: {timeout: 10m, message: "Charge?"}
"""

PROGRAM = Path(__file__).parent / "programs" / "decider.py"
DECIDERS = 4


def asked(kernel: Kernel) -> tuple[LeaseKey, Approval]:
    """An execution that waits for an approval of ``charge``, and the approval."""
    kernel.set_policy(AGENT, ASK)
    lease = start(kernel)
    assert kernel.agent.submit(lease, once()).decision == "blocked"
    (approval,) = kernel.list_approvals()
    return lease, approval


def check_one_decision(kernel: Kernel, approval_id: str, answers: list[str]) -> None:
    """One of them decided, and every other one was told of it."""
    approval = kernel.get_approval(approval_id)
    won = [answer for answer in answers if not answer.startswith("conflict")]
    assert won == [approval.decided_by]
    assert approval.decided_at is not None
    told = f"already {approval.status} by {approval.decided_by!r}"
    when = approval.decided_at.isoformat().replace("+00:00", "Z")
    for answer in answers:
        assert answer in won or (told in answer and when in answer)
    decisions = [kind for kind in kinds(kernel, approval.execution_id) if kind.startswith("appr")]
    assert decisions == ["approval.requested", f"approval.{approval.status}"]


def check_it_runs_once(kernel: Kernel, execution_id: str, status: ApprovalStatus) -> None:
    lease = attempt(kernel, execution_id)
    decision = kernel.agent.submit(lease, once())
    assert decision.decision == ("proceed" if status == "granted" else "denied")
    assert kernel.claim(execution_id) is None
    assert kinds(kernel, execution_id).count("dispatch.queued") == 2


@pytest.mark.parametrize("denials", [0, 2], ids=["grants", "grants and denials"])
def test_c17_threads_decide_at_once(kernel: Kernel, denials: int) -> None:
    """One decision counts, and the others get a conflict that says who and when."""
    lease, approval = asked(kernel)
    gate = threading.Barrier(DECIDERS)

    def decide(number: int) -> str:
        way = kernel.deny_approval if number < denials else kernel.grant_approval
        gate.wait(20)
        try:
            way(approval.id, f"thread {number}")
        except ConflictError as error:
            return error.message
        return f"thread {number}"

    with ThreadPoolExecutor(DECIDERS) as pool:
        answers = list(pool.map(decide, range(DECIDERS)))
    check_one_decision(kernel, approval.id, answers)
    check_it_runs_once(kernel, lease.execution_id, kernel.get_approval(approval.id).status)


@pytest.mark.parametrize("denials", [0, 2], ids=["grants", "grants and denials"])
def test_c17_processes_decide_at_once(tmp_path: Path, denials: int) -> None:
    """As threads: the file decides, not the process."""
    path, go = tmp_path / "kernel.db", tmp_path / "go"
    with Kernel(path) as kernel, ExitStack() as stack:
        kernel.register_agent(AGENT)
        lease, approval = asked(kernel)
        script = ChildScript(PROGRAM, tmp_path, db=path, go=go, approval=approval.id)
        children = [
            stack.enter_context(script.start(name=f"process {n}", denies=n < denials))
            for n in range(DECIDERS)
        ]
        for child in children:
            child.hears("ready")
        go.touch()
        answers = [child.result() for child in children]
        check_one_decision(kernel, approval.id, answers)
        check_it_runs_once(kernel, lease.execution_id, kernel.get_approval(approval.id).status)


# -- C22


def grant(kernel: Kernel, approval: Approval, clock: ManualClock) -> None:
    kernel.grant_approval(approval.id, "alice", "go on")


def deny(kernel: Kernel, approval: Approval, clock: ManualClock) -> None:
    kernel.deny_approval(approval.id, "alice", "too much")


def expire(kernel: Kernel, approval: Approval, clock: ManualClock) -> None:
    clock.advance(600)


def cancel(kernel: Kernel, approval: Approval, clock: ManualClock) -> None:
    kernel.cancel(approval.execution_id)


ENDS: dict[str, tuple[Callable[[Kernel, Approval, ManualClock], None], str, str, str]] = {
    # approval, step after the attempt that met it, what that attempt is told
    "grant": (grant, "granted", "succeeded", "proceed"),
    "deny": (deny, "denied", "denied", "too much"),
    "expire": (expire, "expired", "denied", "approval_timeout"),
    "cancel": (cancel, "expired", "denied", "cancelled"),
}


@pytest.mark.parametrize("opened", ["once", "anew"])
@pytest.mark.parametrize("end", ENDS)
def test_c22_the_state_after_a_decision_is_the_same_in_a_kernel_that_was_opened_anew(
    path: Path, clock: ManualClock, end: str, opened: str
) -> None:
    """Nothing of a decision is in memory. (With real deaths: tests/crash.)"""
    decide, approval_status, step_status, told = ENDS[end]
    kernel = Kernel(path, clock=clock)
    try:
        kernel.register_agent(AGENT)
        lease, approval = asked(kernel)
        if opened == "anew":
            kernel.close()
            kernel = Kernel(path, clock=clock)
        decide(kernel, approval, clock)
        execution = kernel.get(lease.execution_id)
        if end == "cancel":
            assert (execution.status, execution.failure_reason) == (told, "client_cancelled")
        else:
            assert execution.status == "running"
            later = attempt(kernel, lease.execution_id)
            decision = kernel.agent.submit(later, once())
            assert told in (decision.decision, decision.reason)
            if end == "grant":
                kernel.agent.complete_step(later, decision.step_id, "1")
            kernel.agent.complete(later, "null")
        assert kernel.get_approval(approval.id).status == approval_status
        (step,) = kernel.list_steps(lease.execution_id)
        assert step.status == step_status
        assert kernel.list_approvals() == []
    finally:
        kernel.close()


# -- time


def test_an_approval_expires_without_anybody_asking_for_it(path: Path) -> None:
    """Whoever waits for the execution is woken by the timeout itself, at once."""
    with Kernel(path) as kernel:
        kernel.register_agent(AGENT)
        kernel.set_policy(AGENT, ASK.replace("10m", "300ms"))
        lease = start(kernel)
        kernel.agent.submit(lease, once())
        begun = kernel.monotonic()
        mark = kernel.change_mark()
        while kernel.get(lease.execution_id).status == "blocked":
            kernel.wait_for_change(mark, 10.0)
            mark = kernel.change_mark()
        assert 0.25 < kernel.monotonic() - begun < 0.9
        assert kinds(kernel, lease.execution_id)[-4:] == [
            "approval.expired",
            "step.denied",
            "execution.resumed",
            "dispatch.queued",
        ]


def test_the_dispatcher_ends_an_approval_in_time_and_delivers_what_is_resumed(path: Path) -> None:
    """Nobody has to look."""
    taken = threading.Semaphore(0)
    leases: list[LeaseKey] = []

    def receive(lease: LeaseKey, seconds: float) -> bool:
        leases.append(lease)
        taken.release()
        return True

    with Kernel(path) as kernel:
        kernel.register_agent(AGENT)
        kernel.set_policy(AGENT, ASK.replace("10m", "300ms"))
        kernel.host(AGENT, receive)
        kernel.create(AGENT)
        assert taken.acquire(timeout=20)
        kernel.agent.submit(leases[0], once())
        begun = kernel.monotonic()
        assert taken.acquire(timeout=20)
        assert kernel.monotonic() - begun < 0.9
        assert kernel.agent.submit(leases[1], once()).reason == "approval_timeout"


PARKING = """
rules:
  - id: all
    then: {decision: allow, rate_limit: {max_calls: 1, window: 1h, max_wait: 2h}}
"""


def test_c20_a_deadline_fires_in_every_state(path: Path) -> None:
    """Two seconds after its creation, give or take some tenths, whatever the execution does."""
    states = ["queued", "running", "blocked", "parked"]
    with Kernel(path, deadline=2.0) as kernel:
        begun = kernel.monotonic()
        created = {}
        for state in states:
            kernel.register_agent(state)
            kernel.set_policy(state, PARKING if state == "parked" else ASK)
            created[state] = kernel.create(state).id
        leases = {state: attempt(kernel, created[state]) for state in states[1:]}
        assert kernel.agent.submit(leases["running"], call()).decision == "proceed"
        assert kernel.agent.submit(leases["blocked"], once()).decision == "blocked"
        decisions = [kernel.agent.submit(leases["parked"], call()).decision for _ in range(2)]
        assert decisions == ["proceed", "blocked"]
        for state in states:
            with pytest.raises(ExecutionCancelled) as caught:
                kernel.wait(created[state], timeout=10)
            assert caught.value.reason == "deadline_exceeded"
            assert 1.8 < kernel.monotonic() - begun < 2.6
        assert kernel.list_approvals() == []


def test_c36_a_stepped_wall_clock_moves_no_timeout(kernel: Kernel, clock: ManualClock) -> None:
    """An hour ahead or two back, the approval has the ten minutes that it was given."""
    _, approval = asked(kernel)
    for step in (3600, -7200):
        clock.step_wall(step)
        assert kernel.get_approval(approval.id).status == "pending"
    clock.advance(599)
    assert kernel.get_approval(approval.id).status == "pending"
    clock.advance(1)
    assert kernel.get_approval(approval.id).status == "expired"


def test_after_a_reboot_an_approval_keeps_its_wall_time(path: Path, clock: ManualClock) -> None:
    """The machine's clocks begin anew, what was promised to people does not."""
    with Kernel(path, clock=clock) as kernel:
        kernel.register_agent(AGENT)
        _, approval = asked(kernel)
    clock.advance(590)
    clock.reboot("boot-2")
    with Kernel(path, clock=clock) as kernel:
        assert kernel.get_approval(approval.id).status == "pending"
        clock.advance(10)
        assert kernel.get_approval(approval.id).status == "expired"


def test_a_grant_that_comes_too_late_is_a_conflict(kernel: Kernel, clock: ManualClock) -> None:
    """Also when nobody has noticed the end of its time before."""
    _, approval = asked(kernel)
    clock.advance(600)
    with pytest.raises(ConflictError, match="was already expired at 2026-01-01T12:10:00Z: timeout"):
        kernel.grant_approval(approval.id)


# -- what an execution waits for


def test_an_execution_that_ended_is_asked_for_nothing(kernel: Kernel) -> None:
    """Its approvals are closed with it; a late answer is told so."""
    lease, approval = asked(kernel)
    kernel.cancel(lease.execution_id)
    with pytest.raises(ConflictError, match=r"already expired .*: execution_cancelled"):
        kernel.grant_approval(approval.id, "alice")
    assert kinds(kernel, lease.execution_id)[-3:] == [
        "execution.cancelled",
        "approval.expired",
        "step.denied",
    ]


def test_a_sibling_that_had_begun_records_its_outcome(kernel: Kernel) -> None:
    """The block takes the lease, and leaves open steps to those who run them."""
    kernel.set_policy(AGENT, ASK)
    lease = start(kernel)
    sibling = kernel.agent.submit(lease, call())
    assert kernel.agent.submit(lease, once()).decision == "blocked"
    assert kernel.agent.complete_step(lease, sibling.step_id, "1").decision == "recorded"
    with pytest.raises(APIError, match="dispatch lease superseded"):
        kernel.agent.submit(lease, call("another"))


def test_recorded_steps_replay_to_the_attempt_after_a_grant(kernel: Kernel) -> None:
    """A new dispatch counts its calls from the beginning."""
    kernel.set_policy(AGENT, ASK)
    lease = start(kernel)
    first = [perform(kernel, lease, call(args=0)) for _ in range(2)]
    kernel.agent.submit(lease, once())
    (approval,) = kernel.list_approvals()
    kernel.grant_approval(approval.id)
    later = attempt(kernel, lease.execution_id)
    assert (later.dispatch_id != lease.dispatch_id, later.attempt) == (True, 1)
    again = [kernel.agent.submit(later, call(args=0)) for _ in range(3)]
    assert [decision.step_id for decision in again[:2]] == first
    assert [decision.decision for decision in again] == ["replay", "replay", "proceed"]


def test_an_approval_asks_what_the_rule_says(kernel: Kernel) -> None:
    """Its message, its approvers, its time."""
    _, approval = asked(kernel)
    assert (approval.message, approval.approvers) == ("Charge?", None)
    assert (approval.timeout_at - approval.created_at).total_seconds() == 600
    assert kernel.list_approvals("granted") == []
    assert kernel.get_approval(approval.id) == approval


def test_an_approval_has_a_quarter_of_an_hour_unless_the_rule_says_otherwise(
    kernel: Kernel,
) -> None:
    """As the protocol has it."""
    kernel.set_policy(AGENT, "rules: [{id: a, then: {decision: require_approval}}]")
    kernel.agent.submit(start(kernel), call())
    (approval,) = kernel.list_approvals()
    assert (approval.timeout_at - approval.created_at).total_seconds() == 900


def test_texts_that_no_file_can_hold_are_mended(kernel: Kernel) -> None:
    """Halves of characters become the mark for unreadable ones, wherever they come from."""
    ask = '{decision: require_approval, approval_config: {message: "a\\uD800"}}'
    kernel.set_policy(AGENT, f"rules: [{{id: ask, then: {ask}}}]")
    kernel.agent.submit(start(kernel), call())
    (approval,) = kernel.list_approvals()
    assert approval.message == "a\ufffd"
    kernel.deny_approval(approval.id, "\udfff", "no\ud800")
    decided = kernel.get_approval(approval.id)
    assert (decided.decided_by, decided.rationale) == ("\ufffd", "no\ufffd")


def test_granting_is_a_change_that_waiting_notices(kernel: Kernel) -> None:
    """In this process, at once."""
    _, approval = asked(kernel)
    mark = kernel.change_mark()
    kernel.grant_approval(approval.id)
    wait_until(lambda: kernel.change_mark() != mark, "a change")


def test_a_denial_without_a_rationale_has_the_protocols_reason(kernel: Kernel) -> None:
    """It is in the step and in the log."""
    lease, approval = asked(kernel)
    kernel.deny_approval(approval.id)
    (step,) = kernel.list_steps(lease.execution_id)
    assert step.error == {"reason": "approval_denied"}
    denied = [e for e in kernel.events(lease.execution_id) if e.type == "step.denied"]
    assert json.loads(json.dumps(denied[0].payload)) == {
        "step_id": step.step_id,
        "step_type": "tool_call",
        "target": "charge",
        "error": {"reason": "approval_denied"},
    }


def test_a_kernel_that_cannot_read_policies_decides_nothing(path: Path, tmp_path: Path) -> None:
    """Without the extra the call fails and is not recorded: it is no fault of the bundle."""
    with Kernel(path) as kernel:
        kernel.register_agent(AGENT)
        kernel.set_policy(AGENT, ASK)
        answer = ChildScript(
            Path(__file__).parent / "programs" / "no_policies.py", tmp_path, db=path
        ).run()
        assert answer["code"] == "internal_error"
        assert "Install rebuno-sync[kernel]" in answer["message"]
        assert kernel.list_steps(answer["execution"]) == []
