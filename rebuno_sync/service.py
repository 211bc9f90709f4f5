"""What an agent runs on in one process, from its first delivery until it is closed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from .agent import Outcome, dispatch
from .binding import Binding
from .errors import NetworkError, NotFoundError, RebunoError, UnauthorizedError
from .heartbeat import RENEWER, Lease
from .kernel_client import KernelClient
from .outbox import Outbox
from .ports import HostingKernel
from .sender import Sender
from .types import LeaseKey
from .webhook import Delivery, Webhook, WebhookAnswer
from .workers import Slot, Workers, beside

__all__ = ["LocalService", "RemoteService", "Service"]

_log = logging.getLogger(__name__)

_UNWINDING_SECONDS = 0.3
"""How long closing waits for handlers that see their cancel flag."""
_RELEASING_SECONDS = 2.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 10.0
"""Between the tries to reach a kernel that is away, or does not know the agent."""
_PATIENCE_SECONDS = 15.0


class Service(Protocol):
    def begin(self) -> None:
        """Say what the agent is, once."""

    def handle(self, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        """Take a delivery."""

    def dispatch(self, lease: Lease) -> Outcome:
        """Run the handler in this thread."""

    def lingering(self) -> list[Delivery]:
        """What goes on though it was told to stop."""

    def join(self, seconds: float | None = None) -> bool:
        """Wait until nothing waits or runs; whether that is so."""

    def close(self, grace: float) -> None:
        """End everything."""


class RemoteService:
    """Serves a kernel at a URL: its webhooks, its leases, its connections."""

    def __init__(
        self,
        binding: Binding,
        client: KernelClient,
        secret: str,
        workers: int,
        metadata: dict[str, Any],
        stall_timeout: float | None = None,
        *,
        strict: bool = False,
    ) -> None:
        self._binding = binding
        self._strict = strict
        self._stall_timeout = stall_timeout
        self._client = client
        self._sender = Sender()
        self._outboxes: dict[LeaseKey, Outbox] = {}
        self._publication = Publication(client, metadata)
        self._webhook = Webhook(
            (secret,),
            client,
            self._run,
            workers=workers,
            renewer=RENEWER,
            learn_extensions=client.learn_extensions,
        )

    def begin(self) -> None:
        self._publication.begin()

    def handle(self, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        return self._webhook.handle(headers, body)

    def dispatch(self, lease: Lease) -> Outcome:
        return self._run(lease, lambda: None)

    def _run(self, lease: Lease, secured: Callable[[], None]) -> Outcome:
        # Beats of one kernel travel together, so it is the client that sends them.
        RENEWER.keep(lease, self._client)
        self._publication.begin()
        # First of all: it teaches what the kernel can do, which an outbox is made for.
        if RENEWER.secure(lease, self._client):
            secured()
        outbox = self._outboxes[lease.key] = Outbox(self._client, lease, self._sender)
        try:
            outcome = dispatch(
                self._binding,
                outbox,
                lease,
                stall_timeout=self._stall_timeout,
                strict=self._strict,
            )
        finally:
            # An attempt that is ended from outside may hold an outcome still: the kernel decides
            # whether it counts.
            with suppress(RebunoError):
                outbox.flush()
            self._outboxes.pop(lease.key, None)
        _log.debug("execution %s: %s", outcome.execution_id, outcome.status)
        return outcome

    def lingering(self) -> list[Delivery]:
        return [delivery for delivery in self._webhook.deliveries if delivery.lingers]

    def join(self, seconds: float | None = None) -> bool:
        return self._webhook.join(seconds)

    def close(self, grace: float) -> None:
        self._publication.close()
        close_webhook(self._webhook, self._give_back, grace)
        self._sender.close()
        self._client.close()

    def _give_back(self, lease: LeaseKey) -> None:
        """Release a lease, after what its attempt still holds: nothing is taken later."""
        self._outboxes.get(lease, self._client).release(lease)


class LocalService:
    """Serves a kernel of this process, which hands over the attempts that it has claimed."""

    def __init__(
        self,
        binding: Binding,
        kernel: HostingKernel,
        agent_id: str,
        workers: int,
        stall_timeout: float | None = None,
        *,
        strict: bool = False,
    ) -> None:
        self._binding = binding
        self._strict = strict
        self._stall_timeout = stall_timeout
        self._kernel = kernel
        self._agent_id = agent_id
        self._webhook = Webhook(
            (),
            kernel.agent,
            self._run,
            workers=workers,
            renewer=RENEWER,
            learn_extensions=lambda _: None,
        )
        if not kernel.knows_agent(agent_id):
            kernel.register_agent(agent_id)
        kernel.host(agent_id, self._receive)

    def begin(self) -> None:
        pass

    def handle(self, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        raise RuntimeError("an agent whose kernel is in its process takes no webhooks")

    def _receive(self, key: LeaseKey, seconds: float) -> bool:
        lease = Lease(key, seconds, measured_on=self._kernel.monotonic)
        self._kernel.watch_lease(key, lambda: RENEWER.hurry(lease))
        return self._webhook.accept(lease).status < 300

    def dispatch(self, lease: Lease) -> Outcome:
        return self._run(lease, lambda: None)

    def _run(self, lease: Lease, secured: Callable[[], None]) -> Outcome:
        kernel = self._kernel.agent
        return dispatch(
            self._binding,
            kernel,
            lease,
            secured=secured,
            stall_timeout=self._stall_timeout,
            strict=self._strict,
        )

    def lingering(self) -> list[Delivery]:
        return [delivery for delivery in self._webhook.deliveries if delivery.lingers]

    def join(self, seconds: float | None = None) -> bool:
        return self._webhook.join(seconds)

    def close(self, grace: float) -> None:
        self._kernel.unhost(self._agent_id)
        close_webhook(self._webhook, self._kernel.agent.release, grace)


def close_webhook(webhook: Webhook, release: Callable[[LeaseKey], None], grace: float) -> None:
    """Accept nothing more, let handlers finish, end the others and give their leases back.

    One that only waits, in ``wait``, a durable ``sleep`` or a call of a model, is ended as soon as
    it does.
    """

    def end(delivery: Delivery) -> None:
        RENEWER.drop(delivery.lease)
        delivery.lease.end("the agent is closing")

    def give_back(delivery: Delivery, _: Slot) -> None:
        """Several at once; a lease that was lost, or whose execution has ended, is gone."""
        key = delivery.lease.key
        if delivery.thread is not None and not delivery.lingers:
            end(delivery)
            delivery.ended.wait(_UNWINDING_SECONDS)
        try:
            release(key)
        except RebunoError as error:
            _log.info("execution %s: lease not given back: %s", key.execution_id, error)

    def give_back_soon(delivery: Delivery) -> None:
        with suppress(RuntimeError):  # No thread can be had: it keeps its grace.
            releasing.offer(delivery)

    releasing = Workers("rebuno-release", give_back, size=8, longest_queue=1 << 30)
    for delivery in webhook.stop():
        releasing.offer(delivery)
    for delivery in webhook.deliveries:
        delivery.lease.moves.when_at_rest(partial(give_back_soon, delivery))
    if not webhook.join(grace):
        left = [delivery for delivery in webhook.deliveries if not delivery.lease.over]
        for delivery in left:
            end(delivery)
        if not webhook.join(_UNWINDING_SECONDS):
            for delivery in webhook.deliveries:
                delivery.tell_that_it_lingers()
        for delivery in left:
            releasing.offer(delivery)
    releasing.join(_RELEASING_SECONDS)
    releasing.close()


class Publication:
    """Publishes what an agent is and takes (protocol.md 13.10). Never affects its deliveries.

    ``patience``: seconds for which the kernel may not know the agent before the log warns of it.
    """

    def __init__(
        self,
        client: KernelClient,
        metadata: dict[str, Any],
        patience: float = _PATIENCE_SECONDS,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._patience = patience
        self._guard = threading.Lock()
        self._begun = False
        self._over = threading.Event()

    def begin(self) -> None:
        """Publish it now, in a thread of its own, unless that was begun before."""
        with self._guard:
            begun, self._begun = self._begun, True
        if not begun:
            beside("rebuno-metadata", self._publish)

    def close(self) -> None:
        """Try no more."""
        self._over.set()

    def _publish(self) -> None:
        pause, waited = _FIRST_PAUSE_SECONDS, 0.0
        told = False
        while not self._over.is_set() and (error := self._publish_once()):
            if isinstance(error, UnauthorizedError) and waited >= self._patience and not told:
                told = True
                _log.warning("nothing is delivered to agent %s: %s", self._client.agent_id, error)
            self._over.wait(pause)
            waited += pause
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _publish_once(self) -> RebunoError | None:
        """Why it is worth another try without a delivery: the kernel is away, or does not know the
        agent, which may be started first and registered then."""
        try:
            self._client.put_metadata(self._metadata)
        except UnauthorizedError as error:
            return error
        except (NetworkError, NotFoundError) as error:
            if isinstance(error, NetworkError) and error.repeatable:
                return error
            _log.info("the agent's description was not published yet: %s", error)
            with self._guard:
                self._begun = False  # With the next delivery, again.
        except Exception as error:
            _log.info("the agent's description was not published: %s", error)
        return None
