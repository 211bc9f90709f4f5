"""What a kernel delivers, from raw bytes to a handler's thread (protocol.md 4, 13.4)."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from .clock import SYSTEM
from .heartbeat import Lease, Renewer
from .messages import extensions_in
from .ports import AgentKernel
from .signing import verify_body
from .types import LeaseKey
from .workers import Slot, Workers, beside, stack_of

__all__ = ["Delivery", "RunDelivery", "Webhook", "WebhookAnswer"]

_log = logging.getLogger(__name__)

DEFAULT_LEASE_SECONDS = 120.0
"""Of kernels whose webhook does not name it."""
_LONGEST_LEASE_SECONDS = 1e9
_LARGEST_ATTEMPT = 2**63
_LONGEST_QUEUE = 10_000
_MOST_REMEMBERED = 10_000
_UNWINDING_SECONDS = 1.0
"""Within which a handler that was told to stop is expected to have ended."""
_ID = re.compile(r"[!-~]{1,256}")


class WebhookAnswer(NamedTuple):
    """An HTTP status, and why."""

    status: int
    reason: str = ""


_ACCEPTED = WebhookAnswer(200)


class _Malformed(ValueError):
    """A webhook's body is not what a kernel sends."""


class _Notice(NamedTuple):
    """A webhook's body, read."""

    lease: LeaseKey
    lease_seconds: float
    event: str


@dataclass(eq=False)
class Delivery:
    """One attempt that was delivered here: waiting, or run by a thread."""

    lease: Lease
    extensions: str = ""
    """What the kernel named with it."""
    thread: threading.Thread | None = None
    """That runs it, once it was begun."""
    ended: threading.Event = field(default_factory=threading.Event)
    lingers: bool = False
    """Whether it goes on though it was told to stop."""

    @property
    def stack(self) -> str:
        """Where its thread is now."""
        return "" if self.thread is None else stack_of(self.thread.ident)

    def tell_that_it_lingers(self) -> None:
        """Say once in the log that it goes on, and where it is."""
        stack = self.stack
        if not stack or self.lingers:
            return
        self.lingers = True
        execution_id = self.lease.key.execution_id
        why = "given up" if self.lease.moves.given_up else "cancel requested"
        _log.warning("execution %s: %s, body still running:\n%s", execution_id, why, stack)

    def told_to_stop(self) -> None:
        """It may not stop: it is told of then, and when it has."""
        beside("rebuno-watch", self._watch)

    def _watch(self) -> None:
        if self.ended.wait(_UNWINDING_SECONDS):
            return
        self.tell_that_it_lingers()
        self.ended.wait()
        _log.info("execution %s: the body has ended", self.lease.key.execution_id)


class RunDelivery(Protocol):
    """Runs a delivery's handler; calls ``secured`` once its lease is known to hold."""

    def __call__(self, lease: Lease, secured: Callable[[], None]) -> object: ...


class Webhook:
    """Takes deliveries and has them run. Frameworks only hand over headers and bytes.

    ``secrets``: any of them may have signed. ``kernel``: renews the leases. ``run``: runs one
    delivery in the calling thread. ``workers``: how many run at once.
    """

    def __init__(
        self,
        secrets: tuple[str, ...],
        kernel: AgentKernel,
        run: RunDelivery,
        *,
        workers: int,
        renewer: Renewer,
        learn_extensions: Callable[[str], None],
        longest_queue: int = _LONGEST_QUEUE,
    ) -> None:
        self._secrets = secrets
        self._kernel = kernel
        self._run = run
        self._renewer = renewer
        self._learn_extensions = learn_extensions
        self._workers = Workers(
            "rebuno-handler", self._work, size=workers, longest_queue=longest_queue
        )
        self._guard = threading.Lock()
        self._here: dict[str, list[Delivery]] = {}
        self._begun: OrderedDict[str, int] = OrderedDict()
        self._closing = False
        self._told = False

    def handle(self, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        """Verify, read and accept a delivery; answers at once. Names of ``headers`` in any case."""
        headers = {name.lower(): value for name, value in headers.items()}
        if not verify_body(self._secrets, headers.get("rebuno-signature"), body):
            self._tell_of_bad_signature()
            return WebhookAnswer(401)
        try:
            notice = _read(body)
        except _Malformed as error:
            return WebhookAnswer(400, str(error))
        if notice.event:
            self._look_after(notice.lease)
            return _ACCEPTED
        key, named = notice.lease, headers.get("rebuno-extensions", "")
        if "runner" in extensions_in(named):
            key = key._replace(runner=str(SYSTEM.new_id()))
        return self.accept(Lease(key, notice.lease_seconds), named)

    def _tell_of_bad_signature(self) -> None:
        """Once: whoever sends them could fill the log."""
        if not self._told:
            self._told = True
            _log.warning(
                "a webhook was refused: it is not signed with this agent's secret. Is it the one"
                " that the agent is registered with at its kernel? Further ones are not told of"
            )

    def accept(self, lease: Lease, extensions: str = "") -> WebhookAnswer:
        """Queue an attempt, unless it is here already. ``extensions``: those of the kernel."""
        key, delivery = lease.key, Delivery(lease, extensions)
        with self._guard:
            if self._closing:
                return WebhookAnswer(503, "closing")
            if self._knows(key):
                return _ACCEPTED
            self._here.setdefault(key.execution_id, []).append(delivery)
        try:
            # Renewed while it waits for a thread: a long queue costs nobody an attempt.
            self._renewer.keep(lease, self._kernel)
            if self._workers.offer(delivery):
                return _ACCEPTED
            reason = "the queue is full"
        except RuntimeError as error:
            reason = f"no thread can be had: {error}"
        self._forget(delivery)
        return WebhookAnswer(503, reason)

    def _knows(self, key: LeaseKey) -> bool:
        """Whether that attempt, or a later one of its dispatch, is here or was."""
        if not key.attempt:  # A kernel without attempts delivers the same again after a lease.
            here = self._here.get(key.execution_id, ())
            return any(d.lease.key.is_attempt(key) and not d.lease.over for d in here)
        waiting = (d.lease.key for d in self._here.get(key.execution_id, ()))
        known = [at.attempt for at in waiting if at.dispatch_id == key.dispatch_id]
        return max([*known, self._begun.get(key.dispatch_id, 0)]) >= key.attempt

    def _work(self, delivery: Delivery, slot: Slot) -> None:
        lease = delivery.lease
        self._begin(delivery)
        lease.on_end(partial(self._told_to_stop, delivery, slot))
        try:
            self._run(lease, lambda: self._secured(delivery))
        finally:
            self._forget(delivery)

    def _told_to_stop(self, delivery: Delivery, slot: Slot) -> None:
        """It keeps no slot from other work."""
        slot.surrender()
        delivery.told_to_stop()

    def _begin(self, delivery: Delivery) -> None:
        key = delivery.lease.key
        with self._guard:
            delivery.thread = threading.current_thread()
            self._begun[key.dispatch_id] = max(key.attempt, self._begun.get(key.dispatch_id, 0))
            self._begun.move_to_end(key.dispatch_id)
            if len(self._begun) > _MOST_REMEMBERED:
                self._begun.popitem(last=False)

    def _secured(self, delivery: Delivery) -> None:
        """A heartbeat under its lease was accepted.

        Only now is learned what the kernel named with it: the header is not signed, so one that was
        captured and sent again without it must teach nothing.
        """
        self._learn_extensions(delivery.extensions)
        self._supersede_others(delivery)

    def _supersede_others(self, winner: Delivery) -> None:
        """Whatever else runs the execution here is stale."""
        with self._guard:
            here = self._here.get(winner.lease.key.execution_id, ())
            others = [delivery for delivery in here if delivery is not winner]
        for other in others:
            if _is_known_stale(other.lease.key, winner.lease.key):
                self._renewer.drop(other.lease)
                other.lease.end("a newer attempt of the execution runs here")
            else:  # The kernel knows which of the two it is.
                self._renewer.hurry(other.lease)

    def _look_after(self, key: LeaseKey) -> None:
        """A notice proves nothing: ask the kernel whether the lease still holds."""
        with self._guard:
            here = self._here.get(key.execution_id, ())
            leases = [delivery.lease for delivery in here if delivery.lease.key.is_attempt(key)]
        for lease in leases:
            self._renewer.hurry(lease)

    def _forget(self, delivery: Delivery) -> None:
        self._renewer.drop(delivery.lease)
        delivery.ended.set()
        execution_id = delivery.lease.key.execution_id
        with self._guard:
            here = self._here.get(execution_id, [])
            if delivery in here:
                here.remove(delivery)
            if not here:
                self._here.pop(execution_id, None)

    # -- closing

    @property
    def deliveries(self) -> list[Delivery]:
        """All that wait or run."""
        with self._guard:
            return [delivery for here in self._here.values() for delivery in here]

    def join(self, seconds: float | None = None) -> bool:
        """Wait until nothing waits or runs, at most that long; whether that is so."""
        return self._workers.join(seconds)

    def stop(self) -> list[Delivery]:
        """Accept nothing more, and begin nothing; gives what was not begun."""
        with self._guard:
            self._closing = True
        left = self._workers.close()
        for delivery in left:
            self._forget(delivery)
        return left


def _is_known_stale(key: LeaseKey, beside: LeaseKey) -> bool:
    if not key.attempt:  # The oldest kernels accept every heartbeat: the latest delivery counts.
        return True
    return key.dispatch_id == beside.dispatch_id and key.attempt < beside.attempt


def _read(body: bytes) -> _Notice:
    try:
        fields: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _Malformed(f"the body is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise _Malformed("the body is not a JSON object")
    lease = LeaseKey(
        _id_in(fields, "execution_id"), _id_in(fields, "dispatch_id"), _attempt(fields)
    )
    event = fields.get("event", "")
    if not isinstance(event, str):
        raise _Malformed("event is not a text")
    return _Notice(lease, _seconds(fields), event)


def _id_in(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise _Malformed(f"{name} is missing, or not an id")
    return value


def _attempt(fields: dict[str, Any]) -> int:
    """0 stands for a kernel without attempts."""
    if "dispatch_attempt" not in fields:
        return 0
    attempt = fields["dispatch_attempt"]
    if type(attempt) is not int or not 1 <= attempt < _LARGEST_ATTEMPT:
        raise _Malformed("dispatch_attempt is not a whole number from 1")
    return attempt


def _seconds(fields: dict[str, Any]) -> float:
    seconds = fields.get("lease_timeout_seconds", DEFAULT_LEASE_SECONDS)
    if type(seconds) not in (int, float) or not 0 < seconds <= _LONGEST_LEASE_SECONDS:
        raise _Malformed("lease_timeout_seconds is not a positive number")
    return float(seconds)
