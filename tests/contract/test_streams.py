"""Live streams: what running steps receive, as it comes (protocol.md 8.4)."""

from __future__ import annotations

import uuid

from support.attempts import background

from rebuno_sync.types import Delta, LeaseKey

from .deployments import Deployment
from .moves import call, code_of, kinds, next_attempt, start
from .scenarios import scenario


def test_b34_whoever_listens_gets_what_is_published(on: Deployment) -> None:
    """Each piece once, in order, with its step and its number; it is no event."""
    lease = start(on)
    step_id = on.agent.submit(lease, call("model", kind="llm_call")).step_id
    before = kinds(on, lease.execution_id)
    on.agent.delta(lease, step_id, 0, "before")
    with on.operator.stream(lease.execution_id) as stream:
        sent = [Delta(step_id, seq, f"piece {seq} é") for seq in range(1, 4)]
        for delta in sent:
            on.agent.delta(lease, *delta)
        with background(lambda: [next(stream) for _ in sent]) as taking:
            assert taking.result() == sent
    assert kinds(on, lease.execution_id) == before


@scenario("streams are checked")
def test_only_a_step_that_runs_has_pieces(on: Deployment) -> None:
    """One that has ended is a conflict, an unknown one is not found, a superseded attempt is told
    so, and a piece of more than 7,000 bytes is refused.
    """
    lease = start(on)
    step_id = on.agent.submit(lease, call()).step_id
    on.agent.delta(lease, step_id, 0, "x" * 7000)

    def refused(under: LeaseKey, step_id: str, data: str = "x") -> str:
        return code_of(lambda: on.agent.delta(under, step_id, 1, data))

    assert refused(lease, step_id, "é" * 3501) == "validation_error"
    assert refused(lease, "0" * 64) == "not_found"
    later = next_attempt(on, lease)
    assert refused(lease, step_id) == "lease_superseded"
    on.agent.complete_step(later, step_id, "1")
    assert refused(later, step_id) == "conflict"


@scenario("streams are checked")
def test_nobody_listens_to_what_there_is_not(on: Deployment) -> None:
    """An unknown execution is not found."""
    assert code_of(lambda: on.operator.stream(str(uuid.uuid4()))) == "not_found"
