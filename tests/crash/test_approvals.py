"""An approval is decided while the process that asked for it lives, is dead, or was started
again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.children import ChildScript
from support.effect_log import EffectLog
from support.waiting import wait_until

from rebuno_sync.kernel import Kernel
from rebuno_sync.types import Approval

PROGRAM = Path(__file__).parent / "programs" / "waits_for_approval.py"
AGENT = "agent"
FATES = ["alive", "dead", "restarted"]
DENIED = "charge not allowed. reason: [policy_denied] {} (HTTP 403)"

ASK = """
rules:
  - id: ask
    then: {decision: require_approval, approval_config: {timeout: %s}}
"""

Decide = Callable[[Kernel, Approval], object]


def let_expire(kernel: Kernel, approval: Approval) -> None:
    wait_until(
        lambda: kernel.get_approval(approval.id).status == "expired", "the end of an approval"
    )


ENDS: dict[str, tuple[Decide, str, str, str, str]] = {
    # approval, step, execution, what run says
    "grant": (
        lambda kernel, it: kernel.grant_approval(it.id, "alice"),
        *("granted", "succeeded", "completed", "charged"),
    ),
    "deny": (
        lambda kernel, it: kernel.deny_approval(it.id, "alice", "too much"),
        *("denied", "denied", "completed", DENIED.format("too much")),
    ),
    "expire": (
        let_expire,
        *("expired", "denied", "completed", DENIED.format("approval_timeout")),
    ),
    "cancel": (
        lambda kernel, it: kernel.cancel(it.execution_id),
        *("expired", "denied", "cancelled", "cancelled: client_cancelled"),
    ),
}


def asked(kernel: Kernel, key: str) -> Approval | None:
    """What the execution waits for; on a slow machine its time may be over already."""
    execution = kernel.find(AGENT, key)
    approvals = kernel.list_approvals() + kernel.list_approvals("expired")
    found = [it for it in approvals if execution and it.execution_id == execution.id]
    return found[0] if found else None


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_c22_the_end_is_the_same_whatever_became_of_the_process(tmp_path: Path, end: str) -> None:
    """The same states, the same answer to ``run``, and one charge at most."""
    decide, approval_status, step_status, execution_status, answer = ENDS[end]
    log = EffectLog(tmp_path / "log")
    script = ChildScript(PROGRAM, tmp_path, db=tmp_path / "kernel.db", log=log.path)
    with Kernel(tmp_path / "kernel.db") as kernel, ExitStack() as stack:
        kernel.register_agent(AGENT)
        kernel.set_policy(AGENT, ASK % ("4s" if end == "expire" else "10m"))
        children = {fate: stack.enter_context(script.start(key=fate)) for fate in FATES}
        for fate in FATES:
            wait_until(lambda key=fate: asked(kernel, key), f"{fate} asking")
            if fate != "alive":
                children[fate].kill()
            if fate == "restarted":
                children[fate] = stack.enter_context(script.start(key=fate))
        for fate in FATES:
            approval = asked(kernel, fate)
            assert approval is not None
            decide(kernel, approval)
        children["dead"] = stack.enter_context(script.start(key="dead"))
        assert [children[fate].result() for fate in FATES] == [answer] * len(FATES)
        for fate in FATES:
            execution = kernel.find(AGENT, fate)
            assert execution is not None
            assert execution.status == execution_status
            (step,) = kernel.list_steps(execution.id)
            assert step.status == step_status
            assert log.count(fate) == (end == "grant")
        assert len(kernel.list_approvals(approval_status)) == len(FATES)
