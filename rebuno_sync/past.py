"""What one attempt knows of those before it: joins the record, its drift, and the kernel."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from hashlib import sha256
from typing import Any

from .canonical import canonicalize
from .drift import PATCHED, Drift
from .errors import Interrupted, RebunoError
from .frames import Frame, steps_around
from .heartbeat import Lease
from .history import Call, History
from .ports import AgentKernel
from .types import Proposal, Recorded, StepDecision

__all__ = ["Past"]

_log = logging.getLogger(__name__)


class Past:
    """The recorded steps of an execution, as its present attempt meets them. Thread-safe.

    ``around`` is always the ids of the steps in whose bodies the caller is.
    """

    def __init__(self, kernel: AgentKernel, lease: Lease, *, strict: bool) -> None:
        self._kernel = kernel
        self._lease = lease
        self._strict = strict
        self._id = lease.key.execution_id
        self._history = History(self._load)
        self._drift = Drift(
            self._id, self._history, lambda: kernel.list_steps(self._id), strict=strict
        )
        self._patching = threading.Lock()
        self._patches: dict[str, bool] = {}

    def _load(self) -> list[Recorded]:
        try:
            return self._lease.insist(lambda: self._kernel.recorded(self._id))
        except RebunoError as error:
            if self._strict:
                raise Interrupted(f"reading what is recorded: {error}") from error
            _log.info("execution %s: what is recorded could not be read: %s", self._id, error)
            return []

    def expect(self, proposal: Proposal, frame: Frame[Any] | None) -> None:
        """Before a submit from ``frame``: raises ``Interrupted`` where ``strict`` forbids it."""
        self._history.open()
        if self._strict and self._history.left and proposal.target != PATCHED:
            text = proposal.args if proposal.canonical else canonicalize(proposal.args or "null")
            call = Call(proposal.kind, proposal.target, sha256(text.encode()).hexdigest())
            around = _steps_around(frame)
            if self._history.is_new(call, around):
                self._drift.judge(proposal, around, counted=frame is not None)

    def meet(self, decision: StepDecision, proposal: Proposal, frame: Frame[Any] | None) -> None:
        """After a submit from ``frame``, before the body. A strict attempt has judged before."""
        is_new = self._history.meet(decision)
        if is_new and not self._strict and self._history.left and proposal.target != PATCHED:
            self._drift.judge(proposal, _steps_around(frame), counted=frame is not None)

    def at_end(self) -> None:
        """The handler has returned."""
        self._history.open()
        self._drift.at_end()

    @property
    def known(self) -> bool:
        """Whether what is recorded has been read."""
        return self._history.is_open

    def replaying(self, around: Collection[str]) -> bool:
        """Whether recorded steps are ahead and nothing new has begun."""
        self._history.open()
        return not self._history.something_new and self._history.anything_unmet(around)

    def is_behind(self, around: Collection[str]) -> bool:
        """Whether no recorded step is ahead, other than what ``patched`` recorded."""
        return all(step.target == PATCHED for step in self._history.unmet(around))

    def patched(self, name: str, ask: Callable[[], bool]) -> bool:
        """The answer to ``patched(name)``: asked for once in an attempt."""
        with self._patching:
            if name not in self._patches:
                self._patches[name] = ask()
            return self._patches[name]

    def wall(self) -> int:
        """Microseconds since 1970 on the kernel's clock."""
        return self._kernel.wall()

    def seconds_since(self, step_id: str) -> float:
        """How long ago an earlier attempt began a step, on the kernel's clock; 0 if none did."""
        began = self._history.began(step_id)
        return 0.0 if began is None else max(0.0, (self._kernel.wall() - began) / 1_000_000)

    def wait_for_others(self, seconds: float) -> bool:
        """Wait until no thread runs the handler's code, at most that long; whether none does."""
        return self._history.wait_for_others(seconds, counted=False)

    def renew_locks(self) -> None:
        """In a forked child: other threads of the parent may have held them."""
        self._patching = threading.Lock()
        self._history.renew_locks()

    def move(self, threads: int) -> None:
        """So many threads more, or fewer, run the handler's own code now."""
        self._history.move(threads)


def _steps_around(frame: Frame[Any] | None) -> list[str]:
    return [] if frame is None else steps_around(frame, frame.context)
