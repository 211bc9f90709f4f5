"""``Registering``: an operator's methods for agents, of a kernel in process."""

from __future__ import annotations

from ..types import Agent
from .core import Core
from .views import agent_view

__all__ = ["Registering"]


class Registering:
    """What ``Kernel`` says about the agents that it knows."""

    core: Core

    def register_agent(
        self,
        agent_id: str,
        webhook_url: str = "",
        secret: str = "",
        *,
        lease_timeout_seconds: float | None = None,
        signature: str | None = None,
    ) -> Agent:
        """Make an agent known, or replace everything that is known of it (protocol.md 2.3).

        ``webhook_url``: where its attempts are delivered; without one, processes that host its
        handler claim them. ``secret``: signs both ways. ``lease_timeout_seconds``: at most 1e9;
        less than 10, or none, stands for the kernel's default. ``signature="body"``: it may sign
        the body alone, as agents of the first generations do. Raises ``ValidationError``.
        """
        if not agent_id:
            raise ValueError("agent_id must not be empty")
        return agent_view(
            self.core.agents.register(
                agent_id,
                webhook_url=webhook_url,
                secret=secret,
                lease_timeout_seconds=lease_timeout_seconds or 0.0,
                signature=signature,
            )
        )

    def agents(self) -> list[Agent]:
        """All registered agents, by id."""
        return [agent_view(row) for row in self.core.agents.all()]

    def get_agent(self, agent_id: str) -> Agent:
        """One agent; ``NotFoundError`` when there is none."""
        return agent_view(self.core.agents.get(agent_id))

    def delete_agent(self, agent_id: str) -> None:
        """Forget an agent; ``ConflictError`` while executions of it have not ended."""
        self.core.agents.delete(agent_id)

    def knows_agent(self, agent_id: str) -> bool:
        """Whether an agent of that name is registered."""
        return self.core.agents.find(agent_id, fresh=True) is not None
