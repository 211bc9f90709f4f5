"""``Access``: an operator's methods for agents and API keys, over HTTP (protocol.md 2.3)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from .asking import Asking
from .replies import understood
from .types import Agent, ApiKey

__all__ = ["Access"]


class Access(Asking):
    """What ``Client`` says about whom a kernel knows."""

    # -- agents

    def register_agent(
        self,
        agent_id: str,
        webhook_url: str = "",
        secret: str = "",
        *,
        lease_timeout_seconds: float | None = None,
        signature: str | None = None,
    ) -> Agent:
        """Make an agent known, or replace all that is known of it (its policy too, protocol.md
        2.3). An agent without a webhook is run by whoever claims its executions.
        ``signature="body"`` lets an embedded kernel accept requests in the body form."""
        given = {
            "id": agent_id,
            "webhook_url": webhook_url,
            "secret": secret,
            "lease_timeout_seconds": lease_timeout_seconds,
            "signature": signature,
        }
        body = json.dumps({name: value for name, value in given.items() if value is not None})
        # Registering the same again changes nothing, so it may be repeated.
        answer = self._ask("POST", "/v0/agents", body, repeatable=True)
        return understood("an agent", lambda: _agent(answer))

    def agents(self) -> list[Agent]:
        """Every registered agent, by id."""
        answer = self._ask("GET", "/v0/agents")
        return understood("agents", lambda: [_agent(it) for it in answer or ()])

    def get_agent(self, agent_id: str) -> Agent:
        """One agent."""
        answer = self._ask("GET", f"/v0/agents/{quote(agent_id, safe='')}")
        return understood("an agent", lambda: _agent(answer))

    def delete_agent(self, agent_id: str) -> None:
        """Forget an agent."""
        self._ask("DELETE", f"/v0/agents/{quote(agent_id, safe='')}")

    # -- API keys

    def create_key(self, name: str, scopes: Sequence[str]) -> ApiKey:
        """A new API key; its ``token`` is shown this once.

        ``name``: 1 to 200 bytes, for people. ``scopes``: what it may be used for
        (``rebuno_sync.types.Scope``, protocol.md 1.3). Raises ``ValidationError``.
        """
        body = json.dumps({"name": name, "scopes": list(scopes)})
        answer = self._ask("POST", "/v0/api-keys", body)
        return understood("an API key", lambda: ApiKey.model_validate(answer))

    def list_keys(self) -> list[ApiKey]:
        """Every key, revoked ones too; without tokens."""
        answer = self._ask("GET", "/v0/api-keys")
        return understood("API keys", lambda: [ApiKey.model_validate(it) for it in answer or ()])

    def rotate_key(self, key_id: str) -> ApiKey:
        """Give a key a new ``token``; the old one ends at once.

        Raises ``NotFoundError``, and ``ConflictError`` for a key that is revoked.
        """
        answer = self._ask("POST", f"/v0/api-keys/{quote(key_id, safe='')}/rotate")
        return understood("an API key", lambda: ApiKey.model_validate(answer))

    def revoke_key(self, key_id: str) -> None:
        """Let nobody in by a key any more; may be repeated. Raises ``NotFoundError``."""
        self._ask("DELETE", f"/v0/api-keys/{quote(key_id, safe='')}", repeatable=True)


_OLDEST_KEYS = {"ID": "id", "WebhookURL": "webhook_url", "RegisteredAt": "registered_at"}


def _agent(answer: dict[str, Any]) -> Agent:
    """The oldest kernels write other keys (protocol.md 3.6)."""
    return Agent.model_validate({_OLDEST_KEYS.get(key, key): it for key, it in answer.items()})
