"""``subagent`` and ``previous``: what an execution has of others."""

from __future__ import annotations

import json
from typing import Any, Protocol

from .codec import PLAIN
from .context import current
from .failures import decode_failure
from .parking import wait_until
from .types import DecisionKind, Execution, Spawn, Step, StepDecision

__all__ = ["previous", "subagent"]


class Creates(Protocol):
    """Creates executions: a ``Client`` or a ``Kernel``."""

    def create(
        self,
        agent_id: str,
        input: object = None,
        *,
        session: str | None = None,
        spawned_by: dict[str, str] | None = None,
    ) -> Execution: ...


def subagent(
    agent_id: str, input: object = None, session: str = "", client: Creates | None = None
) -> Any:
    """Have another agent do what the tool is for; its output is the tool's result.

    Called in a tool's body, once: the execution that it creates stands for the tool's step, which
    is settled when that has ended, and met again it finds the same one (protocol.md 9.7). While
    nothing else of the handler runs, its own execution is parked, without a thread or a lease. What
    the body does after this call does not change the result.

    ``input``: any JSON value. ``session``: of the new execution; not the caller's own, nor that of
    one that waits for the caller. ``client``: a ``Client`` that creates it; by default the embedded
    kernel of this process, or the agent's kernel with the key ``REBUNO_API_KEY``.

    Raises ``ToolError`` when it failed (reason ``subagent_failed``) or was cancelled
    (``subagent_cancelled``), ``RuntimeError`` outside a tool's body, and ``APIError`` when it
    cannot be created.
    """
    context = current("subagent()")
    body = context.body
    if body is None:
        raise RuntimeError(
            f"subagent({agent_id!r}) was called outside a tool: it belongs in the body of one,"
            " whose result its output is"
        )
    if body.settled is not None:
        raise RuntimeError(
            f"subagent({agent_id!r}) is the second one in the body of step {body.step_id}, which"
            " stands for one subagent; give each a tool of its own"
        )
    input_json = PLAIN.encode(input, "input")
    if client is None:
        spawn = Spawn(agent_id, input_json, body.step_id, session)
        context.heard(lambda: context.recording.spawn(spawn))
    else:
        spawned_by = {"execution_id": context.id, "step_id": body.step_id}
        client.create(
            agent_id, json.loads(input_json), session=session or None, spawned_by=spawned_by
        )
    found: list[Step] = []

    def is_over() -> bool:
        step = context.heard(lambda: context.recording.step(body.step_id))
        if step.status.terminal:
            found.append(step)
        return bool(found)

    wait_until(context, is_over)
    step = found[0]
    error = None if step.error is None else json.dumps(step.error)
    result = json.dumps(step.result)
    body.settled = StepDecision(DecisionKind.REPLAY, body.step_id, result, error)
    if error is not None:
        raise decode_failure(error, step.target, step.step_id)
    return step.result


def previous() -> Any:
    """What the execution before this one left behind: its state, else its output (protocol.md 9.3).

    That is the one that was completed last by the same agent in the same session, or the one that
    ``create`` was given as ``parent_execution_id``. ``None`` where there is none.
    """
    context = current("previous()")
    context.check()
    return context.heard(context.recording.previous)
