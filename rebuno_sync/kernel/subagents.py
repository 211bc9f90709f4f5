"""Executions that stand for a step of another one (protocol.md 9.7). Functions of a transaction.

The step is settled in the transaction that ends the subagent, so no settlement is ever missed.
"""

from __future__ import annotations

import json

from ..errors import api_error
from ..types import ExecutionStatus, StepStatus
from . import suspension
from .moment import Moment
from .store import Connection, kinship, tables
from .store.rows import ExecutionRow

__all__ = ["PARENT_TERMINAL", "Spawner", "check_spawner", "settle_parent"]

Spawner = tuple[str, str]
"""The ids of the execution and of its step that a subagent is created from."""

PARENT_TERMINAL = "parent_agent_terminal"

_SETTLED_AS = {ExecutionStatus.FAILED: "subagent_failed"}
_CANCELLED = "subagent_cancelled"


def check_spawner(db: Connection, parent: ExecutionRow, step_id: str, session: str | None) -> None:
    """Raise unless that step of the parent can wait for a subagent now."""
    if parent.status.terminal:
        raise api_error("conflict", f"conflict: execution {parent.id} is {parent.status}", 409)
    if session is not None and session in kinship.sessions_above(db, parent.id):
        raise api_error(
            "validation_error",
            f"validation error: a subagent cannot be of session {session!r}: its parent is, or one"
            " above that, so each would wait for the other to end; name another session, or none",
            400,
        )
    step = tables.step(db, parent.n, step_id)
    if step is None:
        raise api_error(
            "validation_error",
            f"validation error: spawned_by names no step of execution {parent.id}: {step_id!r}",
            400,
        )
    if step.status is not StepStatus.EXECUTING:
        raise api_error("conflict", f"conflict: step {step_id} is {step.status}", 409)


def settle_parent(db: Connection, child: ExecutionRow, now: Moment) -> None:
    """The child has ended: so has the step that it stands for, if it still waits."""
    if child.spawner is None or child.spawner_step is None:
        return
    parent = tables.execution(db, child.spawner)
    step = None if parent is None else tables.step(db, parent.n, child.spawner_step)
    if parent is None or step is None:
        return
    if child.status is ExecutionStatus.COMPLETED:
        suspension.settle_awaited(db, parent, step, now, result=child.output or "null")
        return
    error = {
        "reason": _SETTLED_AS.get(child.status, _CANCELLED),
        "execution_id": child.id,
        "failure_reason": child.failure_reason,
    }
    suspension.settle_awaited(db, parent, step, now, error=json.dumps(error))
