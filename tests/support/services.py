"""A kernel served over HTTP on a free port of this machine, and agents that it delivers to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import rebuno_sync as rebuno
from rebuno_sync.delivery import HttpDeliver
from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel.http.app import KernelApp
from rebuno_sync.serving import Server

from .faulty_wire import FaultyWire

__all__ = ["SECRET", "TOKEN", "Service"]

TOKEN = "the operator's token"
SECRET = "the agent's secret"


class Service:
    """A served kernel on a file of its own. ``wire``: what its requests pass.

    ``extensions``: whether it tells agents of those that it has.
    """

    def __init__(self, folder: Path, *, extensions: bool = True, **of_kernel: Any) -> None:
        self.kernel = Kernel(folder / "served.db", **of_kernel)
        self.wire = FaultyWire(KernelApp(self.kernel, TOKEN))
        self._server = Server(self.wire, "127.0.0.1", 0, threads=16)
        self.url = self._server.url
        self.client = rebuno.Client(self.url, TOKEN)
        self._extensions = extensions
        self._post = HttpDeliver()
        self._agents: list[tuple[rebuno.Agent, Server]] = []
        self.kernel.deliver_webhooks(self._deliver)

    def _deliver(
        self, url: str, headers: Sequence[tuple[str, str]], body: bytes, timeout: float
    ) -> int:
        if not self._extensions:
            headers = [pair for pair in headers if pair[0].lower() != "rebuno-extensions"]
        return self._post(url, headers, body, timeout)

    def agent(
        self, handler: Callable[..., Any], agent_id: str = "served", **options: Any
    ) -> rebuno.Agent:
        """An agent of this process that serves ``handler``, registered."""
        agent = rebuno.Agent(agent_id, secret=SECRET, base_url=self.url, **options)
        agent.bind(handler)
        server = Server(agent.app, "127.0.0.1", 0)
        self._agents.append((agent, server))
        self.client.register_agent(agent_id, server.url + agent.webhook_path, SECRET)
        return agent

    def webhook_url(self, agent: rebuno.Agent) -> str:
        [server] = [server for one, server in self._agents if one is agent]
        return server.url + agent.webhook_path

    def run(self, input: object = None, agent_id: str = "served", timeout: float = 20) -> Any:
        """Create an execution and wait for its output."""
        return self.client.run(agent_id, input, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kernel.stop_deliveries()
        for agent, server in self._agents:
            agent._grace = 0.0
            agent.close()
            server.close()
        self.client.close()
        self._server.close()
        self.kernel.close()
