"""Handlers whose effects a person decides on: ``run`` waits, replays and goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest
from support.attempts import AGENT, attempt, background
from support.faulty_port import FaultyPort
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync.errors import ExecutionCancelled, ExecutionFailed
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import Approval

ASK = """
default_action: allow
rules:
  - id: ask
    when: {target: "charge*"}
    then: {decision: require_approval, approval_config: {timeout: %s}}
"""


def asking(kernel: Kernel, timeout: str = "10m") -> None:
    kernel.register_agent(AGENT)
    kernel.set_policy(AGENT, ASK % timeout)


def next_approval(kernel: Kernel) -> Approval:
    """The one approval that waits, once there is one."""
    return wait_until(kernel.list_approvals, "somebody asking for an approval")[0]


class Charges:
    """Three tools that each need an approval, and what ran of them."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.tools = [self._tool(f"charge_{letter}") for letter in "abc"]

    def _tool(self, name: str) -> Callable[[], str]:
        @rebuno.tool(name, idempotency="at_most_once")
        def charge() -> str:
            self.ran.append(name)
            return f"{name} done"

        return charge


def test_run_waits_for_a_person(kernel: Kernel) -> None:
    """It goes on when the approval is granted, and what ran before is replayed."""
    asking(kernel)
    charges, searches = Charges(), []

    @rebuno.tool
    def search() -> str:
        searches.append(1)
        return "found"

    def handler() -> list[str]:
        return [search(), charges.tools[0]()]

    with background(lambda: rebuno.run(handler, agent=AGENT, kernel=kernel)) as running:
        approval = next_approval(kernel)
        assert kernel.get(approval.execution_id).status == "blocked"
        assert charges.ran == []
        kernel.grant_approval(approval.id, "alice")
    assert running.result() == ["found", "charge_a done"]
    assert (searches, charges.ran) == ([1], ["charge_a"])


def test_run_waits_without_writing(kernel: Kernel) -> None:
    """A person takes hours: it looks now and then, and keeps nobody from the file."""
    asking(kernel)
    [charge, *_] = Charges().tools
    with background(lambda: rebuno.run(lambda: charge(), agent=AGENT, kernel=kernel)) as running:
        approval = next_approval(kernel)
        threading.Event().wait(0.3)  # Until it has looked for the first time.
        before = kernel.change_mark()
        threading.Event().wait(0.5)
        assert kernel.change_mark() == before
        kernel.grant_approval(approval.id, "ann")
        assert running.result() == "charge_a done"


@pytest.mark.parametrize("rationale", ["", "too much"])
def test_a_denied_tool_answers_with_a_text_for_the_model(kernel: Kernel, rationale: str) -> None:
    """A denial is no failure: the handler goes on, knowing why."""
    asking(kernel)
    charges = Charges()
    with background(
        lambda: rebuno.run(lambda: charges.tools[0](), agent=AGENT, kernel=kernel)
    ) as running:
        kernel.deny_approval(next_approval(kernel).id, "alice", rationale)
    assert running.result() == f"charge_a not allowed. reason: {policy_reason(rationale)}"
    assert charges.ran == []


def policy_reason(rationale: str) -> str:
    return f"[policy_denied] {rationale or 'approval_denied'} (HTTP 403)"


def test_an_approval_that_nobody_answers_is_a_denial(kernel: Kernel) -> None:
    """``run`` wakes with its timeout, not with its next look."""
    asking(kernel, "200ms")
    charges = Charges()
    begun = kernel.monotonic()
    told = rebuno.run(lambda: charges.tools[0](), agent=AGENT, kernel=kernel)
    assert "approval_timeout" in told
    assert kernel.monotonic() - begun < 0.8


def test_run_goes_on_when_its_rate_limit_lets_it(kernel: Kernel) -> None:
    """Not a look later."""
    kernel.register_agent(AGENT)
    limit = "{max_calls: 1, window: 250ms, max_wait: 5s}"
    kernel.set_policy(AGENT, f"rules: [{{id: a, then: {{decision: allow, rate_limit: {limit}}}}}]")
    charges = Charges()
    begun = kernel.monotonic()
    done = rebuno.run(lambda: [charges.tools[0](), charges.tools[1]()], agent=AGENT, kernel=kernel)
    assert done == ["charge_a done", "charge_b done"]
    assert charges.ran == ["charge_a", "charge_b"]
    assert 0.2 < kernel.monotonic() - begun < 0.8


def test_cancelling_ends_a_run_that_waits(kernel: Kernel) -> None:
    """Within a moment (C7 e)."""
    asking(kernel)
    charges = Charges()
    with background(
        lambda: rebuno.run(lambda: charges.tools[0](), agent=AGENT, kernel=kernel)
    ) as running:
        kernel.cancel(next_approval(kernel).execution_id)
        running.join(1.0)
    assert isinstance(running.raised, ExecutionCancelled)
    assert kernel.list_approvals() == []


def test_c20_a_timeout_does_not_count_the_time_of_waiting_for_an_approval(kernel: Kernel) -> None:
    """It is the body's, and begins with it; so do the tries."""
    asking(kernel)
    tries: list[int] = []

    @rebuno.tool("charge", timeout=0.3, retries=1)
    def charge() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("not yet")
        return "charged"

    with background(lambda: rebuno.run(lambda: charge(), agent=AGENT, kernel=kernel)) as running:
        approval = next_approval(kernel)
        assert not threading.Event().wait(0.5)
        kernel.grant_approval(approval.id)
    assert running.result() == "charged"
    assert len(tries) == 2


def test_a_run_that_waits_too_long_says_for_what(kernel: Kernel) -> None:
    """The approval, and the tool that asked for it; the execution goes on with its key."""
    asking(kernel)
    charges = Charges()

    def handler() -> str:
        return charges.tools[0]()

    with pytest.raises(TimeoutError) as caught:
        rebuno.run(handler, agent=AGENT, kernel=kernel, key="k", timeout=0.2)
    approval = next_approval(kernel)
    assert f"grant or deny approval {approval.id} (charge_a)" in str(caught.value)
    kernel.grant_approval(approval.id)
    assert rebuno.run(handler, agent=AGENT, kernel=kernel, key="k") == "charge_a done"


def test_an_effect_in_the_body_of_another_may_be_asked_for(kernel: Kernel) -> None:
    """The outer body runs again, up to what was granted."""
    asking(kernel)
    charges, begun = Charges(), []

    @rebuno.tool
    def outer() -> str:
        begun.append(1)
        return charges.tools[0]()

    with background(lambda: rebuno.run(lambda: outer(), agent=AGENT, kernel=kernel)) as running:
        kernel.grant_approval(next_approval(kernel).id)
    assert running.result() == "charge_a done"
    assert (len(begun), charges.ran) == (2, ["charge_a"])


def test_run_says_what_it_waits_for(kernel: Kernel, caplog: pytest.LogCaptureFixture) -> None:
    """Or a script would seem to hang."""
    asking(kernel)
    charges = Charges()
    with background(
        lambda: rebuno.run(lambda: charges.tools[0](), agent=AGENT, kernel=kernel)
    ) as running:
        approval = next_approval(kernel)
        told = f"execution {approval.execution_id} waits for approval {approval.id} (charge_a)"
        wait_until(lambda: told in caplog.messages, "a warning")
        kernel.grant_approval(approval.id)
    assert running.result() == "charge_a done"


def test_wait_waits_for_a_person_too(kernel: Kernel) -> None:
    """It is the same execution, blocked or not."""
    asking(kernel)
    charges = Charges()
    agent = rebuno.Agent(AGENT, kernel=kernel)
    try:
        agent.bind(lambda: charges.tools[0]())
        execution_id = kernel.create(AGENT, {}).id
        approval = next_approval(kernel)
        with pytest.raises(TimeoutError, match=r"still blocked .* grant or deny approval"):
            kernel.wait(execution_id, timeout=0.05)
        kernel.grant_approval(approval.id)
        assert kernel.wait(execution_id, timeout=20).output == "charge_a done"
    finally:
        agent.close()


def test_a_handler_may_take_a_denial_for_its_end(kernel: Kernel) -> None:
    """A local step that is denied raises, with the rationale."""
    kernel.register_agent(AGENT)
    kernel.set_policy(AGENT, "rules: [{id: ask, then: {decision: require_approval}}]")
    with background(
        lambda: rebuno.run(lambda: rebuno.step("clock", lambda: 1), agent=AGENT, kernel=kernel)
    ) as running:
        kernel.deny_approval(next_approval(kernel).id, rationale="no clocks")
        running.join(20)
    assert isinstance(running.raised, ExecutionFailed)
    assert running.raised.reason == "policy_denied: no clocks"


# -- C18


def in_a_pool(charges: Charges) -> list[str]:
    with rebuno.ThreadPoolExecutor(3) as pool:
        futures: list[Future[str]] = [pool.submit(tool) for tool in charges.tools]
        return [future.result() for future in futures]


def in_parallel(charges: Charges) -> list[str]:
    return rebuno.parallel(charges.tools)


@pytest.mark.parametrize("three_at_once", [in_a_pool, in_parallel])
def test_c18_parallel_tools_are_asked_for_one_after_another(
    kernel: Kernel, three_at_once: Callable[[Charges], list[str]]
) -> None:
    """The first blocks the execution and the others unwind; each later attempt replays the
    answers so far and asks for the next. Each tool gets its own, and runs at most once."""
    asking(kernel)
    charges = Charges()
    answers = {"charge_a": False, "charge_b": True, "charge_c": True}
    asked: list[str] = []
    with background(
        lambda: rebuno.run(lambda: three_at_once(charges), agent=AGENT, kernel=kernel)
    ) as running:
        for _ in answers:
            approval = next_approval(kernel)
            assert len(kernel.list_approvals()) == 1
            target = kernel.get_step(approval.execution_id, approval.step_id).target
            assert target not in asked
            asked.append(target)
            decide = kernel.grant_approval if answers[target] else kernel.deny_approval
            decide(approval.id, "alice", f"{target} it is")
    denial = f"charge_a not allowed. reason: {policy_reason('charge_a it is')}"
    assert running.result() == [denial, "charge_b done", "charge_c done"]
    assert sorted(charges.ran) == ["charge_b", "charge_c"]
    assert sorted(asked) == sorted(answers)


def test_c18_a_sibling_that_had_begun_records_its_outcome(kernel: Kernel) -> None:
    """The block does not cost it its work: the next attempt replays it."""
    asking(kernel)
    charges = Charges()
    begun, go_on = threading.Event(), threading.Event()
    ran: list[int] = []

    @rebuno.tool(idempotency="at_most_once")
    def sibling() -> str:
        ran.append(1)
        begun.set()
        go_on.wait(20)
        return "sound"

    def handler() -> list[str]:
        with rebuno.ThreadPoolExecutor(2) as pool:
            first = pool.submit(sibling)
            begun.wait(20)
            second = pool.submit(charges.tools[0])
            return [first.result(), second.result()]

    with background(lambda: rebuno.run(handler, agent=AGENT, kernel=kernel)) as running:
        approval = next_approval(kernel)
        go_on.set()
        wait_until(
            lambda: [s for s in kernel.list_steps(approval.execution_id) if s.status.terminal],
            "the sibling recording its outcome",
        )
        kernel.grant_approval(approval.id)
    assert running.result() == ["sound", "charge_a done"]
    assert (len(ran), charges.ran) == (1, ["charge_a"])


def test_c18_a_sibling_that_was_just_allowed_runs(kernel: Kernel) -> None:
    """An ``at_most_once`` effect counts as begun from then on: if it unwound with the block, the
    next attempt would take its outcome for unknown, and it would never run."""
    asking(kernel)
    execution_id = kernel.create(AGENT).id
    charges = Charges()
    allowed, blocked = threading.Event(), threading.Event()
    ran: list[int] = []

    @rebuno.tool(idempotency="at_most_once")
    def sibling() -> str:
        ran.append(1)
        return "sound"

    def blocks() -> str:
        allowed.wait(20)
        try:
            return charges.tools[0]()
        finally:
            blocked.set()

    def handler() -> list[str]:
        with rebuno.ThreadPoolExecutor(2) as pool:
            return [it.result() for it in (pool.submit(sibling), pool.submit(blocks))]

    def late_answer() -> None:
        allowed.set()
        blocked.wait(20)

    port = FaultyPort(kernel.agent)
    port.after("submit", late_answer)
    assert attempt(kernel, execution_id, handler, port=port).status == "blocked"
    kernel.grant_approval(next_approval(kernel).id)
    assert attempt(kernel, execution_id, handler).output == ["sound", "charge_a done"]
    assert (len(ran), charges.ran) == (1, ["charge_a"])


def test_an_attempt_that_blocks_waits_for_siblings_that_nobody_waits_for(kernel: Kernel) -> None:
    """Or the next attempt of this process would find their steps open, and one that may not run
    twice would be lost."""
    asking(kernel)
    execution_id = kernel.create(AGENT).id
    charges = Charges()
    begun, go_on = threading.Event(), threading.Event()

    @rebuno.tool(idempotency="at_most_once")
    def sibling() -> str:
        begun.set()
        go_on.wait(20)
        return "sound"

    def handler() -> str:
        threading.Thread(target=rebuno.carry(lambda: quietly(sibling)), daemon=True).start()
        begun.wait(20)
        return charges.tools[0]()

    with background(lambda: attempt(kernel, execution_id, handler)) as attempting:
        next_approval(kernel)
        go_on.set()
        attempting.join(20)
    assert attempting.returned.status == "blocked"
    statuses = {step.target: step.status for step in kernel.list_steps(execution_id)}
    assert statuses == {"sibling": "succeeded", "charge_a": "awaiting_approval"}


def quietly(effect: Callable[[], object]) -> None:
    try:
        effect()
    except BaseException:
        return
