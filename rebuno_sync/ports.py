"""The seams: what one part of the house may ask of another.

Each has two real implementations under one contract suite; none is mocked.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Protocol

from .types import (
    Capture,
    CaptureFailure,
    Execution,
    LeaseKey,
    Proposal,
    Recorded,
    Registration,
    Renewal,
    ResourceView,
    Spawn,
    Step,
    StepDecision,
    Wake,
)

__all__ = ["AgentKernel", "Clock", "Deliver", "HostingKernel", "Pushed"]


class ResourceKernel(Protocol):
    """What an execution asks of a kernel about resources (protocol.md 9.6). All may be repeated."""

    def register(self, lease: LeaseKey, wanted: Registration) -> ResourceView:
        """Register a resource, or find it as it stands."""

    def bind(self, lease: LeaseKey, key: str, binding: str) -> None:
        """Say what it is bound to: JSON."""

    def keep(
        self, lease: LeaseKey, captures: Sequence[Capture], failures: Sequence[CaptureFailure]
    ) -> None:
        """Say what of the resources as they are now was captured, and what could not be."""


class AgentKernel(Protocol):
    """What an execution may ask of its kernel.

    Every method raises ``APIError`` when the kernel answered with an error (code
    ``lease_superseded`` when the lease is gone, ``execution_terminal`` when the execution has
    ended), and ``NetworkError`` or ``StorageError`` when the answer, or whether there was one, is
    unknown. JSON goes in and out as text. Thread-safe.
    """

    @property
    def wants_request_ids(self) -> bool:
        """Whether each submit should carry a request id, under which it may be repeated."""

    @property
    def renews_together(self) -> bool:
        """Whether ``renew`` of many leases takes about as long as of one."""

    @property
    def takes_deltas(self) -> bool:
        """Whether anybody can see what ``delta`` publishes."""

    @property
    def keeps_tries(self) -> bool:
        """Whether it keeps the failed tries of a step (protocol.md 17, ``attempts``): only then
        ``retrying`` and ``begin_try`` may be called."""

    @property
    def parks(self) -> bool:
        """Whether ``suspend`` takes a ``Wake`` (protocol.md 17, ``wake``)."""

    @property
    def takes_leases_back(self) -> bool:
        """Whether ``release`` does anything; else a lease runs out, and its strike counts."""

    @property
    def resources(self) -> ResourceKernel:
        """What it is asked about resources."""

    def get_execution(self, execution_id: str) -> Execution:
        """The execution as it stands now."""

    def list_steps(self, execution_id: str) -> list[Step]:
        """Every recorded step of the execution."""

    def recorded(self, execution_id: str) -> list[Recorded]:
        """What an attempt needs to know of every recorded step."""

    def wall(self) -> int:
        """The time on the kernel's clock, as far as it is known: microseconds since 1970."""

    def submit(self, lease: LeaseKey, proposal: Proposal) -> StepDecision:
        """Record an effect before it runs (protocol.md 7). Repeated by the caller only after a
        ``NetworkError`` that is ``repeatable``."""

    def complete_step(self, lease: LeaseKey, step_id: str, result: str) -> StepDecision:
        """Record an effect's result (protocol.md 8.1). May be repeated."""

    def fail_step(self, lease: LeaseKey, step_id: str, error: str) -> StepDecision:
        """Record an effect's error (protocol.md 8.2). May be repeated."""

    def delta(self, lease: LeaseKey, step_id: str, seq: int, data: str) -> None:
        """Publish a piece, at most 7,000 bytes, of what a step that runs receives (protocol.md
        8.4); ``seq`` counts from 0 for each step. It is not recorded and may be lost."""

    def retrying(
        self, lease: LeaseKey, step_id: str, attempt: int, error: str, retry_in: float
    ) -> StepDecision:
        """Record that try number ``attempt`` of an effect failed, and is followed by another in
        ``retry_in`` seconds (protocol.md 17, ``attempts``). May be repeated."""

    def begin_try(self, lease: LeaseKey, step_id: str, attempt: int) -> StepDecision:
        """Record that try number ``attempt``, which follows a failed one, begins. May be
        repeated."""

    def renew(self, leases: Sequence[LeaseKey]) -> list[Renewal]:
        """Send a heartbeat for each lease; answers in the same order. Never raises."""

    def complete(self, lease: LeaseKey, output: str, state: str | None = None) -> None:
        """End the execution with its output, and what it leaves behind (protocol.md 9.3, 9.4)."""

    def fail(self, lease: LeaseKey, reason: str) -> None:
        """End the execution as failed (protocol.md 9.4)."""

    def release(self, lease: LeaseKey, *, interrupted: bool = False, strike: bool = True) -> None:
        """Give the lease back (protocol.md 17, ``release``): due at once and no strike counts,
        or, when ``interrupted``, due after the usual back-off, with its ``strike`` or without."""

    def suspend(self, lease: LeaseKey, wake: Wake | None = None) -> bool:
        """Block the execution and retire the lease until what it waits for is settled
        (protocol.md 9.7), or until a sleep of it is over; whether it waits."""

    def spawn(self, lease: LeaseKey, spawn: Spawn) -> Execution:
        """Create the subagent of a step, or find it (protocol.md 9.7). May be repeated."""

    def get_step(self, execution_id: str, step_id: str) -> Step:
        """A step as it stands now."""

    def previous(self, execution_id: str) -> object:
        """What the execution before that one left behind (protocol.md 9.3)."""


class Deliver(Protocol):
    """Carries a webhook to its receiver; an HTTP library that a kernel gets injected."""

    def __call__(
        self, url: str, headers: Sequence[tuple[str, str]], body: bytes, timeout: float
    ) -> int:
        """POST ``body`` once and return the status of the answer, within ``timeout`` seconds.

        Raises ``TimeoutError`` when they are over, ``NetworkError`` when the connection failed
        (``repeatable`` when none could be made), and ``ValueError`` for an address that is none.
        """


class HostingKernel(Protocol):
    """A kernel in this process, as an agent sees it."""

    @property
    def agent(self) -> AgentKernel:
        """What executions ask of it."""

    def monotonic(self) -> float:
        """The clock on which it measures leases."""

    def knows_agent(self, agent_id: str) -> bool:
        """Whether it is registered."""

    def register_agent(self, agent_id: str) -> object:
        """Register an agent without a webhook."""

    def host(self, agent_id: str, receive: Callable[[LeaseKey, float], bool]) -> None:
        """Hand every attempt of the agent that is due to ``receive``, with the seconds of its
        lease; it says whether it takes it."""

    def watch_lease(self, lease: LeaseKey, over: Callable[[], None]) -> None:
        """Call ``over`` when a lease of this process is over before its handler has ended it."""

    def unhost(self, agent_id: str) -> None:
        """Hand it no more."""


class Pushed(Protocol):
    """A response body without an end, which a server may take from as it grows."""

    @property
    def idle_seconds(self) -> float:
        """After so long without anything to send, ``idle_bytes`` are due."""

    @property
    def idle_bytes(self) -> bytes:
        """What shows that the connection lives."""

    @property
    def ended(self) -> bool:
        """Whether nothing comes any more."""

    def on_more(self, call: Callable[[], None]) -> None:
        """Have ``call`` called, in any thread, when there may be something to take."""

    def take(self) -> bytes:
        """What there is to send now."""

    def close(self) -> None:
        """The response is over. Idempotent."""


class Clock(Protocol):
    """Time and randomness. Durations are measured on ``monotonic`` and ``boottime`` only."""

    def wall(self) -> int:
        """Microseconds since 1970 in UTC. May be stepped; for people to read."""

    def monotonic(self) -> float:
        """Seconds since the machine booted, the same in all its processes; stops in suspend."""

    def boottime(self) -> float:
        """As ``monotonic``, but goes on in suspend where the platform can tell."""

    def boot_id(self) -> str:
        """Names this boot of the machine: the two clocks compare only under one boot id."""

    def random(self) -> float:
        """A number in [0, 1)."""

    def new_id(self) -> uuid.UUID:
        """A UUIDv7; those of one process ascend."""
