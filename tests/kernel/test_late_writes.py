"""What is kept in memory of an attempt whose execution has been taken from it. Everything that may
arrive for an execution, in every state, is in ``tests/matrix``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from rebuno_sync.errors import APIError
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import LeaseKey

from .moves import ask_for, call, start

ENDS: dict[str, Callable[[Kernel, LeaseKey], object]] = {
    "cancelled": lambda kernel, lease: kernel.cancel(lease.execution_id),
    "blocked": lambda kernel, lease: kernel.agent.submit(lease, call("ask")),
}

WRITES: dict[str, Callable[[Kernel, LeaseKey, str], object]] = {
    "submit": lambda kernel, lease, _: kernel.agent.submit(lease, call("new")),
    "complete step": lambda kernel, lease, step: kernel.agent.complete_step(lease, step, "2"),
    "heartbeat": lambda kernel, lease, _: kernel.agent.renew([lease]),
    "complete": lambda kernel, lease, _: kernel.agent.complete(lease, "2"),
    "release": lambda kernel, lease, _: kernel.agent.release(lease),
}


@pytest.mark.parametrize("last", WRITES)
@pytest.mark.parametrize("status", ENDS)
def test_an_attempt_that_is_over_leaves_nothing_in_memory(
    kernel: Kernel, status: str, last: str
) -> None:
    """What is kept of an attempt goes when it hears, in whatever way, that it holds nothing."""
    ask_for(kernel, "ask")
    lease = start(kernel)
    step_id = kernel.agent.submit(lease, call("open")).step_id
    ENDS[status](kernel, lease)
    assert kernel.get(lease.execution_id).status == status
    with suppress(APIError):
        WRITES[last](kernel, lease, step_id)
    assert kernel._store().attempts.get(lease) is None
