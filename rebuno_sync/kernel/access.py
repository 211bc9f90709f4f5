"""``Access``: an operator's methods for API keys, of a kernel in process."""

from __future__ import annotations

from collections.abc import Sequence

from ..types import ApiKey
from .core import Core
from .views import key_view

__all__ = ["Access"]


class Access:
    """What ``Kernel`` says about who may ask it over HTTP."""

    core: Core

    def create_key(self, name: str, scopes: Sequence[str]) -> ApiKey:
        """A new API key; its ``token`` is shown this once.

        ``name``: 1 to 200 bytes, for people. ``scopes``: what it may be used for
        (``rebuno_sync.types.Scope``, protocol.md 1.3). Raises ``ValidationError``.
        """
        return key_view(*self.core.keys.create(name, scopes))

    def list_keys(self) -> list[ApiKey]:
        """Every key, the oldest first, revoked ones too; without tokens."""
        return [key_view(row) for row in self.core.keys.all()]

    def rotate_key(self, key_id: str) -> ApiKey:
        """Give a key a new ``token``; the old one ends at once.

        Raises ``NotFoundError``, and ``ConflictError`` for a key that is revoked.
        """
        return key_view(*self.core.keys.rotate(key_id))

    def revoke_key(self, key_id: str) -> None:
        """Let nobody in by a key any more; may be repeated. Raises ``NotFoundError``."""
        self.core.keys.revoke(key_id)
