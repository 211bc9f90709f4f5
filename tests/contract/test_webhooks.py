"""Webhooks: what is sent, and what becomes of an attempt that does not arrive (protocol.md 4)."""

from __future__ import annotations

import pytest
from support.receiver import Received, Receiver

from rebuno_sync.types import LeaseKey

from .deployments import MAX_ATTEMPTS, Changeable, Deployment
from .moves import kinds, log

CALLED = "called"
"""An agent with a receiver of its own."""

DELIVERY_SECONDS = 30.0


def attempts(on: Deployment, execution_id: str, kind: str) -> list[int]:
    """The numbers of the attempts that events of a kind name."""
    return [payload["attempt"] for it, payload in log(on, execution_id) if it == kind]


def test_b18_a_webhook_that_was_refused_is_sent_again(on: Deployment, receiver: Receiver) -> None:
    """503 first, then 200: the second attempt is acknowledged, and the execution runs on. The
    signature is in the headers and not in the body.
    """
    answers = iter([503, 200])
    receiver.answer = lambda _: next(answers)
    on.register(CALLED, receiver.url)
    execution = on.operator.create(CALLED)
    on.deliver()
    on.pass_back_off()
    on.deliver()
    first, second = receiver.received
    assert first.lease == LeaseKey(execution.id, first.lease.dispatch_id, first.lease.attempt)
    assert second.lease.dispatch_id == first.lease.dispatch_id
    assert "signature" not in second.fields
    assert second.headers["rebuno-signature"].startswith("sha256=")
    assert second.headers["rebuno-execution-id"] == execution.id
    assert attempts(on, execution.id, "dispatch.failed") == [1]
    assert attempts(on, execution.id, "dispatch.acked") == [2]
    assert on.operator.get(execution.id).status == "running"


@pytest.mark.parametrize("status", [400, 404, 410, 302, 500, 502])
def test_b19_a_webhook_that_is_refused_for_good(
    on: Deployment, receiver: Receiver, status: int
) -> None:
    """As many calls as attempts, one `dispatch.failed` for each; with the last one the execution
    has failed.
    """
    receiver.answer = lambda _: status
    on.register(CALLED, receiver.url)
    execution = on.operator.create(CALLED)
    for number in range(1, MAX_ATTEMPTS + 1):
        on.deliver()
        assert attempts(on, execution.id, "dispatch.failed") == list(range(1, number + 1))
        if number < MAX_ATTEMPTS:
            on.pass_back_off()
    ended = on.operator.get(execution.id)
    assert (ended.status, ended.failure_reason) == ("failed", "dispatch_exhausted")
    assert kinds(on, execution.id)[-1] == "execution.failed"
    on.pass_back_off()
    on.deliver()
    assert len(receiver.received) == MAX_ATTEMPTS


def test_b23_deliveries_run_side_by_side(on: Changeable, receiver: Receiver) -> None:
    """One that is not answered yet holds up no other: its receiver answers when the other's has
    been called.
    """
    with Receiver() as waiting:

        def answer(_: Received) -> int:
            receiver.wait_for(1)
            return 200

        waiting.answer = answer
        on.register("waiting", waiting.url)
        on.register(CALLED, receiver.url)
        ids = [on.operator.create(agent_id).id for agent_id in ("waiting", CALLED)]
        on.deliver()
        for execution_id in ids:
            assert attempts(on, execution_id, "dispatch.acked") == [1]


def test_b23_a_webhook_that_hangs_is_given_up(on: Changeable, receiver: Receiver) -> None:
    """After thirty seconds (here: as long as the test has); then it counts as any that failed."""
    on.delivery_seconds = 0.1
    receiver.answer = receiver.hang
    on.register(CALLED, receiver.url)
    execution = on.operator.create(CALLED)
    on.deliver()
    assert on.limits == [DELIVERY_SECONDS]
    assert attempts(on, execution.id, "dispatch.failed") == [1]
    receiver.answer = lambda _: 200
    on.pass_back_off()
    on.deliver()
    assert attempts(on, execution.id, "dispatch.acked") == [2]
