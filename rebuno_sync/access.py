"""``Access``: an operator's methods for API keys, over HTTP (protocol.md 2.3)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from .replies import understood
from .types import ApiKey

__all__ = ["Access"]


class Access:
    """What ``Client`` says about who may ask a kernel."""

    def _ask(
        self,
        method: str,
        path: str,
        body: str | None = None,
        *,
        query: dict[str, Any] | None = None,
        repeatable: bool | None = None,
    ) -> Any:
        raise NotImplementedError

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
