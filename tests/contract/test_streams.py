"""Live streams: what a running step publishes reaches whoever listens (protocol.md 8.4)."""

from __future__ import annotations

import uuid
from contextlib import closing

from rebuno_sync.types import Delta

from .deployments import Deployment
from .moves import call, code_of, start
from .scenarios import scenario


@scenario("streams")
def test_a_listener_gets_what_is_published_from_then_on(on: Deployment) -> None:
    """In order, whoever else listens, and nothing from before."""
    lease = start(on)
    step_id = on.agent.submit(lease, call(kind="llm_call")).step_id
    on.agent.delta(lease, step_id, 0, "before")
    first, second = on.operator.stream(lease.execution_id), on.operator.stream(lease.execution_id)
    with closing(first), closing(second):
        sent = [Delta(step_id, seq, f"piece {seq}\n\u2028") for seq in range(1, 9)]
        for delta in sent:
            on.agent.delta(lease, *delta)
        assert [next(first) for _ in sent] == sent
        assert [next(second) for _ in sent] == sent


@scenario("streams")
def test_a_step_that_has_ended_publishes_nothing(on: Deployment) -> None:
    """Nor does an attempt that is over; an execution that is unknown has no stream."""
    lease = start(on)
    step_id = on.agent.submit(lease, call()).step_id
    on.agent.complete_step(lease, step_id, "1")
    assert code_of(lambda: on.agent.delta(lease, step_id, 0, "late")) == "conflict"
    on.operator.cancel(lease.execution_id)
    assert code_of(lambda: on.operator.stream(str(uuid.uuid4()))) == "not_found"
