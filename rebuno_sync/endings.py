"""An execution that has ended, as the caller of a function sees it."""

from __future__ import annotations

from .errors import ExecutionCancelled, ExecutionFailed
from .types import Execution, ExecutionStatus

__all__ = ["ended"]


_EXPLAINED = {
    "dispatch_exhausted": "dispatch_exhausted (attempt after attempt died without settling a new"
    " step, max_attempts of the kernel in a row; its steps tell where)",
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
