"""``Agent``: serves what a kernel delivers to an agent."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from pydantic import BaseModel

from .agent import Outcome
from .binding import Binding
from .binding.handlers import name_of
from .closing import Closing
from .heartbeat import Lease
from .kernel_client import KernelClient
from .ports import HostingKernel
from .service import LocalService, RemoteService, Service
from .serving import Server, Stop, stopped_by_signals
from .webhook import WebhookAnswer
from .wsgi import WebhookApp

__all__ = ["Agent"]

F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger(__name__)


class SupportsClose(Protocol):
    def close(self) -> object: ...


class Agent(Closing):
    """Runs a handler for the executions that a kernel delivers by webhook.

    ``agent_id``: its name in the kernel. ``secret``: what it shares with the kernel, by default
    ``REBUNO_AGENT_SECRET``; the webhooks and every request are signed with it. ``base_url``: the
    kernel's, by default ``REBUNO_URL``. ``webhook_path``: where ``app`` takes webhooks.
    ``kernel_timeout``: seconds to wait for an answer of the kernel. ``description`` and
    ``output_schema`` (a JSON Schema or a pydantic model) are published with the input's schema.
    ``kernel``: a ``Kernel`` in this process instead of one at a URL; its executions come straight
    from it, and need no secret.
    ``workers``: handlers that run at once; more wait in a queue. ``grace``: seconds that handlers
    have to finish when the agent closes; one that only waits (``execution().wait``, ``sleep``) is
    ended at once. ``stall_timeout``: seconds for which a handler may neither
    enter nor leave an effect; after that it is taken for hung, its lease runs out, and another
    attempt takes over. No limit by default; it must be longer than any one body.
    ``closes``: what its handlers use and nobody else, an ``MCPClient`` say; it is closed after they
    have ended.
    ``strict``: whether an attempt stops, as ``interrupted``, before its first new step when
    recorded ones were not met again.

    The form of its signatures is found out; ``REBUNO_SIGNATURE`` (``v1`` or ``body``) pins it.
    Nothing starts, and nothing is connected, before a delivery or ``run``. After a fork the child
    starts anew. A ``with`` block closes it. Raises ``ValueError`` for a missing or bad argument.
    """

    def __init__(
        self,
        agent_id: str,
        *,
        secret: str | None = None,
        base_url: str | None = None,
        webhook_path: str = "/webhook",
        kernel_timeout: float = 35.0,
        description: str | None = None,
        output_schema: dict[str, Any] | type[BaseModel] | None = None,
        kernel: HostingKernel | None = None,
        workers: int = 32,
        grace: float = 10.0,
        stall_timeout: float | None = None,
        closes: Iterable[SupportsClose] = (),
        strict: bool = False,
    ) -> None:
        if not agent_id:
            raise ValueError("agent_id must not be empty")
        if workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}")
        if grace < 0:
            raise ValueError(f"grace must not be negative, it is in seconds, not {grace}")
        if stall_timeout is not None and not 0 < stall_timeout < math.inf:
            raise ValueError(
                f"stall_timeout must be more than 0 seconds, or None, not {stall_timeout}"
            )
        if not webhook_path.startswith("/"):
            raise ValueError(f"webhook_path must begin with /, not {webhook_path!r}")
        self.agent_id = agent_id
        self.webhook_path = webhook_path
        self._kernel = kernel
        self._secret = self._base_url = ""
        if kernel is None:
            self._secret = _given(secret, "secret", "REBUNO_AGENT_SECRET")
            self._base_url = _given(base_url or None, "base_url", "REBUNO_URL").rstrip("/")
        self._timeout = kernel_timeout
        self._signature = os.environ.get("REBUNO_SIGNATURE") or None
        self._description = description
        self._output_schema = _schema_of(output_schema)
        self._workers = workers
        self._grace = grace
        self._stall_timeout = stall_timeout
        self._strict = strict
        self._closes = list(closes)
        self._binding: Binding | None = None
        self._closed = self._ended = False
        self._stops: set[Stop] = set()
        self._forget_service()
        if kernel is None:
            self._connect()  # Bad arguments are found out now.
        _agents.add(self)

    def _forget_service(self) -> None:
        """Begin anew, touching nothing of what was: also after a fork."""
        self._guard = threading.Lock()
        self._closing = threading.Lock()
        self._made: Service | None = None

    def _connect(self) -> KernelClient:
        return KernelClient(
            self._base_url,
            self.agent_id,
            self._secret,
            timeout=self._timeout,
            signature=self._signature,
        )

    def bind(self, fn: F) -> F:
        """Let ``fn`` be the handler, the only one; binding the same again changes nothing.

        With a kernel in this process its executions are taken from now on. Raises ``TypeError``
        for what cannot be a handler, and ``ValueError`` when the agent has another, or when another
        ``Agent`` serves this id on the same kernel.
        """
        binding = Binding(fn)
        with self._guard:
            bound = self._binding
            if bound is None:
                self._binding = binding
            elif bound.handler != fn:
                raise ValueError(
                    f"agent {self.agent_id!r} has the handler {name_of(bound.handler)}, and cannot"
                    f" serve {name_of(fn)} as well: make an Agent with an id of its own for it"
                )
        if self._kernel is not None:
            self._service()
        return fn

    @property
    def webhook(self) -> Entrance:
        """Takes deliveries, ``webhook.handle(headers, body)``, for a framework of your own."""
        return Entrance(self)

    @cached_property
    def app(self) -> WebhookApp:
        """The WSGI application that takes webhooks at ``webhook_path``."""
        if self._kernel is not None:
            raise RuntimeError(
                f"agent {self.agent_id!r} takes no webhooks: its kernel is in this process"
            )
        self._bound()
        return WebhookApp(self.webhook_path, self.webhook.handle)

    def _bound(self) -> Binding:
        if self._binding is None:
            raise RuntimeError(
                f"agent {self.agent_id!r} has no handler yet; call agent.bind(handler) first"
            )
        return self._binding

    def _service(self) -> Service:
        binding = self._bound()
        with self._guard:
            if self._made is None:
                self._made = self._start(binding)
                if self._closed:
                    self._made.close(0)
            return self._made

    def _start(self, binding: Binding) -> Service:
        if self._kernel is not None:
            return LocalService(
                binding,
                self._kernel,
                self.agent_id,
                self._workers,
                self._stall_timeout,
                strict=self._strict,
            )
        metadata = {
            "description": self._description,
            "input_schema": binding.schema(),
            "output_schema": self._output_schema,
        }
        return RemoteService(
            binding,
            self._connect(),
            self._secret,
            self._workers,
            metadata,
            self._stall_timeout,
            strict=self._strict,
        )

    def run(self, fn: Callable[..., Any], host: str = "0.0.0.0", port: int = 5000) -> None:
        """Serve ``fn`` at ``http://host:port`` until ``close``, SIGINT or SIGTERM; then close.

        Signals are handled in the main thread only; a second one ends the process at once. With a
        kernel in this process nothing is served, and ``host`` and ``port`` mean nothing. A kernel
        that cannot be reached yet is waited for. Raises ``ImportError`` when the extra ``serve`` is
        not installed, and ``OSError`` when the address cannot be had, before anything has begun.
        """
        stop = Stop()
        with stopped_by_signals(stop.set):
            self.bind(fn)
            server = None if self._kernel is not None else Server(self.app, host, port)
            self._stops.add(stop)
            try:
                if server is not None:
                    _log.info(
                        "agent %s, for the kernel at %s, takes webhooks at %s",
                        self.agent_id,
                        self._base_url,
                        server.url + self.webhook_path,
                    )
                    self._service().begin()
                if not self._closed:
                    stop.wait()
                self.close()  # Still serving: what comes now is refused in words.
            finally:
                self._stops.discard(stop)
                if server is not None:
                    server.close()

    def dispatch(self, lease: Lease) -> Outcome:
        """Run the handler under ``lease`` in this thread; for hosts that deliver by themselves."""
        return self._service().dispatch(lease)

    @property
    def lingering(self) -> dict[str, str]:
        """The executions whose bodies go on here though they were told to stop, cancelled or
        superseded, and where each is: the stack of its thread. What they do is not recorded, and
        they keep no place from other work."""
        with self._guard:
            service = self._made
        left = [] if service is None else service.lingering()
        return {delivery.lease.key.execution_id: delivery.stack for delivery in left}

    def join(self, timeout: float | None = None) -> bool:
        """Wait until no delivery waits or runs, at most ``timeout`` seconds; whether none does."""
        with self._guard:
            service = self._made
        return service is None or service.join(timeout)

    def close(self) -> None:
        """Take nothing more (503), let handlers finish for ``grace`` seconds, then set their cancel
        flags and give their leases back, so that another process takes over. Idempotent."""
        with self._closing:
            with self._guard:
                service = self._made
                self._closed = True
            if service is not None and not self._ended:
                service.close(self._grace)
            if not self._ended:
                self._close_what_it_used()
            self._ended = True  # One that was interrupted before it came here is closed again.
        for stop in list(self._stops):
            stop.set()

    def _close_what_it_used(self) -> None:
        for used in self._closes:
            try:
                used.close()
            except Exception:
                _log.exception("agent %s: %r could not be closed", self.agent_id, used)


class Entrance:
    """Where an agent's deliveries come in."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def handle(self, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
        """Take a delivery: verify the raw bytes, then read them; answers at once.

        Header names in any case.
        """
        return self._agent._service().handle(headers, body)


def _given(value: str | None, name: str, variable: str) -> str:
    value = os.environ.get(variable) if value is None else value
    if not value:
        raise ValueError(f"an agent needs {name}: give {name}=... or set {variable}")
    return value


def _schema_of(output: dict[str, Any] | type[BaseModel] | None) -> dict[str, Any] | None:
    if isinstance(output, type):
        return output.model_json_schema()
    return output


_agents: WeakSet[Agent] = WeakSet()


def _forget_inherited() -> None:
    """A forked child has none of the parent's deliveries, threads or connections."""
    for agent in list(_agents):
        agent._forget_service()


os.register_at_fork(after_in_child=_forget_inherited)
