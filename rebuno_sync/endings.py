"""An execution that has ended, or will not, as the caller of a function sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .errors import ExecutionCancelled, ExecutionFailed, RebunoError
from .types import Event, Execution, ExecutionStatus

__all__ = ["PAGE", "ended", "still_open", "why_blocked"]

PAGE = 1000
"""Events that are asked for at a time."""
_MOST_PAGES = 10

_EXPLAINED = {
    "dispatch_exhausted": "dispatch_exhausted. One attempt after the other ended (its process died,"
    " or it fell silent for longer than its lease) before it could record a new step, as many in a"
    " row as the kernel's max_attempts; the steps that are still executing tell where",
}


def ended(execution: Execution) -> Execution:
    """A terminal execution: itself when completed, else its error is raised."""
    reason = execution.failure_reason
    where = f"execution {execution.id} of {execution.agent_id}"
    if execution.status is ExecutionStatus.FAILED:
        told = _EXPLAINED.get(reason, reason)
        raise ExecutionFailed(f"{where} failed: {told}", execution.id, reason)
    if execution.status is ExecutionStatus.CANCELLED:
        raise ExecutionCancelled(f"{where} was cancelled: {reason}", execution.id, reason)
    return execution


def still_open(
    execution: Execution, seconds: float, page: Callable[[int], Sequence[Event]]
) -> TimeoutError:
    """What a caller is told who waited ``seconds`` in vain: also why nothing happens, if it shows.

    ``page``: gives at most ``PAGE`` events after a number.
    """
    waited = f"execution {execution.id} is still {execution.status} after {seconds} s"
    if execution.status is ExecutionStatus.BLOCKED:
        return TimeoutError(f"{waited}; {why_blocked(page)}")
    if execution.status is ExecutionStatus.PENDING:
        return TimeoutError(f"{waited}: session {execution.session!r} runs one at a time")
    last = _last(page, "dispatch.")
    if last is None:
        return TimeoutError(waited)
    attempt = last.payload.get("attempt")
    if last.type == "dispatch.acked":
        again = isinstance(attempt, int) and attempt > 1
        told = f"; attempt {attempt} of it was begun last, and those before it did not end it"
        return TimeoutError(f"{waited}{told}: the agent's log says why" if again else waited)
    if last.type == "dispatch.queued":
        return TimeoutError(
            f"{waited}: no agent {execution.agent_id!r} has taken it; does one run?"
        )
    why = last.payload.get("reason") or "the kernel's log says why"
    return TimeoutError(f"{waited}: attempt {attempt} of it could not be delivered: {why}")


def why_blocked(page: Callable[[int], Sequence[Event]]) -> str:
    """What a blocked execution waits for, as far as its log tells."""
    told: dict[str, Any] = {}
    undecided: dict[str, None] = {}
    for event in _log(page):
        if event.type == "execution.blocked":
            told = event.payload
        elif event.type == "approval.requested":
            undecided[event.payload["approval_id"]] = None
        elif event.type.startswith("approval."):
            undecided.pop(event.payload["approval_id"], None)
    if undecided:
        return f"somebody has to grant or deny approval {', '.join(undecided)}"
    if told.get("reason") == "sleeping":
        return f"it sleeps until {told.get('wake_at')}"
    if told.get("reason") == "awaiting_steps":
        return "it waits for executions that it has spawned (spawned_by), which an agent has to run"
    return "list_approvals() tells whether a person has to decide"


def _last(page: Callable[[int], Sequence[Event]], kind: str) -> Event | None:
    """The last event whose type begins so."""
    found = None
    for event in _log(page):
        if event.type.startswith(kind):
            found = event
    return found


def _log(page: Callable[[int], Sequence[Event]]) -> list[Event]:
    """All events; none when there are too many to look at, or they cannot be had."""
    found: list[Event] = []
    try:
        for _ in range(_MOST_PAGES):
            events = page(found[-1].event_seq if found else 0)
            found += events
            if len(events) < PAGE:
                return found
    except RebunoError:  # The caller has waited long enough, and asked for something else.
        pass
    return []
