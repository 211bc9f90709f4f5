"""What the logs of executions say, against what a kernel says of them.

Everything that an operator can read of an execution follows from its events. Whatever happens, the
two must tell the same story, and the story only grows.
"""

from __future__ import annotations

from typing import NamedTuple

from rebuno_sync.kernel import Kernel
from rebuno_sync.types import (
    Approval,
    ApprovalStatus,
    Event,
    Execution,
    ExecutionStatus,
    Step,
    StepStatus,
)

from .histories import all_events

__all__ = ["Story", "check_file_of", "check_grown", "check_story", "story"]

_EXECUTION = {
    "created": ExecutionStatus.PENDING,
    "started": ExecutionStatus.RUNNING,
    "blocked": ExecutionStatus.BLOCKED,
    "resumed": ExecutionStatus.RUNNING,
    "completed": ExecutionStatus.COMPLETED,
    "failed": ExecutionStatus.FAILED,
    "cancelled": ExecutionStatus.CANCELLED,
}
_STEP = {str(status): status for status in StepStatus} | {"retrying": StepStatus.ALLOWED}
_APPROVAL = {str(status): status for status in ApprovalStatus} | {
    "requested": ApprovalStatus.PENDING
}
_AFTER_THE_END = {"approval.expired", "step.denied", "step.cancelled", "dispatch.acked"}


class Story(NamedTuple):
    """All that an operator can read of one execution."""

    execution: Execution
    events: list[Event]
    steps: dict[str, Step]
    approvals: dict[str, Approval]

    @property
    def kinds(self) -> list[str]:
        """The types of its events."""
        return [event.type for event in self.events]


def story(kernel: Kernel, execution_id: str) -> Story:
    """As it stands now, after whatever time has brought about."""
    execution = kernel.get(execution_id)
    events = all_events(kernel, execution_id)
    asked = [it.payload["approval_id"] for it in events if it.type == "approval.requested"]
    return Story(
        execution,
        events,
        {step.step_id: step for step in kernel.list_steps(execution_id)},
        {approval_id: kernel.get_approval(approval_id) for approval_id in asked},
    )


def check_story(told: Story) -> None:
    """Assert that the statuses of the execution, its steps and its approvals are what its log
    says: numbered without a gap, with one end of each thing, and nothing open after the last."""
    numbers = [event.event_seq for event in told.events]
    assert numbers == list(range(1, len(numbers) + 1)), "the log has a gap"
    status = ExecutionStatus.PENDING
    steps: dict[str, StepStatus] = {}
    approvals: dict[str, ApprovalStatus] = {}
    for event in told.events:
        subject, _, word = event.type.partition(".")
        if status.terminal:
            assert event.type in _AFTER_THE_END, f"{event.type} after {status}"
        if subject == "execution" and word in _EXECUTION:
            assert (word == "resumed") <= (status == "blocked"), "resumed, and was not blocked"
            status = _EXECUTION[word]
        elif subject == "step" and word in _STEP:
            step_id = event.payload["step_id"]
            before = steps.get(step_id)
            assert before is None or not before.terminal, f"{event.type} after {before}"
            steps[step_id] = _STEP[word]
        elif subject == "approval":
            approval_id = event.payload["approval_id"]
            first = (word == "requested") == (approval_id not in approvals)
            assert first, f"a second {event.type}"
            assert approvals.get(approval_id, "pending") == "pending", f"a second {event.type}"
            approvals[approval_id] = _APPROVAL[word]
    assert told.execution.status == status, "the log says another status of the execution"
    assert {it.step_id: it.status for it in told.steps.values()} == steps
    assert {it.id: it.status for it in told.approvals.values()} == approvals
    if status.terminal:
        assert "pending" not in approvals.values(), "an ended execution waits for a person"
    if status == "cancelled":
        assert "executing" not in steps.values(), "a cancelled execution has a step that runs"


def check_grown(before: Story, after: Story) -> None:
    """Assert that nothing recorded was lost or changed: the log was appended to, what had ended is
    as it was (but its key may be a fork's by now), and the steps and approvals there were are
    there."""
    assert after.events[: len(before.events)] == before.events, "the log was rewritten"
    assert before.steps.keys() <= after.steps.keys(), "a step is gone"
    assert before.approvals.keys() <= after.approvals.keys(), "an approval is gone"
    if before.execution.status.terminal:
        keyless = [
            it.execution.model_copy(update={"idempotency_key": None}) for it in (before, after)
        ]
        assert keyless[0] == keyless[1], "an ended execution has changed"
        assert after[1:] == before[1:], "something of an ended execution has changed"
    for step_id, step in before.steps.items():
        if step.status.terminal:
            assert after.steps[step_id] == step, "an ended step has changed"
    for approval_id, approval in before.approvals.items():
        if approval.status != "pending":
            assert after.approvals[approval_id] == approval, "a decided approval has changed"


_OPEN_DISPATCHES = """
SELECT e.id, e.status, count(d.n) FROM executions e
LEFT JOIN dispatches d ON d.execution = e.n AND d.status != 'exhausted'
GROUP BY e.n HAVING count(d.n) != (e.status = 'running')"""

_LEFT_OVER = """
SELECT e.id, e.status, 'approval' FROM approvals a JOIN executions e ON e.n = a.execution
JOIN steps s ON s.n = a.step WHERE (a.status = 'pending') != (s.status = 'awaiting_approval')
UNION ALL
SELECT e.id, e.status, 'sleep' FROM executions e JOIN wakes w ON w.execution = e.n
WHERE e.status IN ('completed', 'failed', 'cancelled')
UNION ALL
SELECT e.id, e.status, 'approval' FROM executions e JOIN approvals a ON a.execution = e.n
WHERE a.status = 'pending' AND e.status != 'blocked'
UNION ALL
SELECT e.id, e.status, 'subagent' FROM executions e JOIN executions p ON p.id = e.spawner
WHERE e.status IN ('pending', 'running', 'blocked')
AND p.status IN ('completed', 'failed', 'cancelled')
UNION ALL
SELECT session, count(*), 'session' FROM executions
WHERE session IS NOT NULL AND status IN ('running', 'blocked') GROUP BY session HAVING count(*) > 1
UNION ALL
SELECT e.session, e.status, 'place in line' FROM executions e WHERE e.status = 'pending'
AND NOT EXISTS (SELECT 1 FROM executions o
                WHERE o.session = e.session AND o.status IN ('running', 'blocked'))
"""


def check_file_of(kernel: Kernel) -> None:
    """Assert what holds of all executions of a file together: one that runs, and no other, has one
    dispatch to be delivered or delivered; nothing that has ended waits or is waited for; a session
    runs one at a time."""
    store = kernel.core.store()
    assert store.read(lambda db: db.execute(_OPEN_DISPATCHES).fetchall()) == []
    assert store.read(lambda db: db.execute(_LEFT_OVER).fetchall()) == []
