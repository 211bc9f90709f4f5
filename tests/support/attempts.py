"""Attempts without ``run``: claim an execution and dispatch a handler for it, in this thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rebuno_sync.agent import Outcome, dispatch
from rebuno_sync.binding import Binding
from rebuno_sync.heartbeat import RENEWER, Lease, Renewer
from rebuno_sync.kernel import Kernel
from rebuno_sync.ports import AgentKernel

__all__ = ["AGENT", "attempt", "background", "claimed", "created"]

AGENT = "agent-of-the-tests"


def created(kernel: Kernel, input: object = None, *, key: str | None = None) -> str:
    """The id of a new execution."""
    kernel.register_agent(AGENT)
    return kernel.create(AGENT, input, idempotency_key=key).id


def claimed(kernel: Kernel, execution_id: str) -> Lease:
    """The lease of an execution that nobody holds."""
    claim = kernel.claim(execution_id)
    assert claim is not None, f"{execution_id} cannot be claimed"
    return Lease(
        claim.lease, claim.lease_seconds, accepted_at=claim.at, measured_on=kernel.monotonic
    )


def attempt(
    kernel: Kernel,
    execution_id: str,
    handler: Callable[..., Any],
    *,
    port: AgentKernel | None = None,
    renewer: Renewer = RENEWER,
) -> Outcome:
    """One attempt of ``handler``, which speaks with its kernel through ``port``."""
    lease = claimed(kernel, execution_id)
    return dispatch(Binding(handler), port or kernel.agent, lease, renewer=renewer)


class _Background(threading.Thread):
    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(name="background", daemon=True)
        self._work = work
        self.raised: BaseException | None = None
        self.returned: Any = None

    def run(self) -> None:
        try:
            self.returned = self._work()
        except BaseException as error:
            self.raised = error

    def result(self, seconds: float = 20.0) -> Any:
        """What it returned; raises what it raised."""
        self.join(seconds)
        assert not self.is_alive(), f"it has not ended in {seconds} s"
        if self.raised is not None:
            raise self.raised
        return self.returned


@contextmanager
def background(work: Callable[[], Any]) -> Iterator[_Background]:
    """Run ``work`` in a plain thread beside the block, which waits for it at its end."""
    thread = _Background(work)
    thread.start()
    yield thread
    thread.join(20.0)
    assert not thread.is_alive(), "the work in the background has not ended"
