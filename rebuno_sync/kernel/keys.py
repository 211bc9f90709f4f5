"""``Keys``: API keys, each with the scopes that it may be used for (protocol.md 1.3, 2.3)."""

from __future__ import annotations

import hmac
import uuid
from collections.abc import Callable, Sequence
from hashlib import sha256

from ..clock import random_secret
from ..errors import APIError, api_error
from ..ports import Clock
from ..types import Scope
from .store import Connection, Store, credentials
from .store.rows import KeyRow

__all__ = ["Keys"]

_PREFIX = "rbk_"
_SECRET_LENGTH = 43
_LONGEST_NAME_BYTES = 200


class Keys:
    """The keys that a kernel knows. It keeps no token: whoever made one has it."""

    def __init__(self, store: Callable[[], Store], clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def create(self, name: str, scopes: Sequence[str]) -> tuple[KeyRow, str]:
        """A new key and its token."""
        key_id = str(self._clock.new_id())
        token, token_hash = _new_token(key_id)
        row = KeyRow(
            key_id,
            _checked_name(name),
            _checked_scopes(scopes),
            token_hash,
            self._clock.wall(),
            None,
        )
        self._store().write(lambda db: credentials.put_key(db, row), durable=True)
        return row, token

    def all(self) -> list[KeyRow]:
        """The oldest first, revoked ones too."""
        return self._store().read(credentials.keys)

    def rotate(self, key_id: str) -> tuple[KeyRow, str]:
        """Replace a key's token, at once; the new one."""
        token, token_hash = _new_token(key_id)

        def work(db: Connection) -> KeyRow:
            row = _get(db, key_id)
            if row.revoked_at is not None:
                raise api_error(
                    "conflict", f"conflict: API key {key_id} is revoked; create another", 409
                )
            row = row._replace(hash=token_hash)
            credentials.put_key(db, row)
            return row

        return self._store().write(work, durable=True), token

    def revoke(self, key_id: str) -> None:
        """Let nobody in by it any more. May be repeated."""
        now = self._clock.wall()

        def work(db: Connection) -> None:
            row = _get(db, key_id)
            if row.revoked_at is None:
                credentials.put_key(db, row._replace(revoked_at=now))

        self._store().write(work, durable=True)

    def scopes_of(self, token: str) -> frozenset[str] | None:
        """What the bearer of a token may do; ``None`` when it is no key's."""
        key_id, dot, secret = token.removeprefix(_PREFIX).partition(".")
        if not (token.startswith(_PREFIX) and dot and len(secret) == _SECRET_LENGTH):
            return None
        try:
            key_id = str(uuid.UUID(key_id))
        except ValueError:
            return None
        # Read each time: what another process has revoked opens nothing any more.
        row = self._store().read(lambda db: credentials.key(db, key_id))
        if row is None or row.revoked_at is not None or not _matches(row, token):
            return None
        return frozenset(row.scopes.split())


def _new_token(key_id: str) -> tuple[str, bytes]:
    token = f"{_PREFIX}{key_id}.{random_secret()}"
    return token, sha256(token.encode()).digest()


def _matches(row: KeyRow, token: str) -> bool:
    given = sha256(token.encode("utf-8", "replace")).digest()
    return hmac.compare_digest(given, row.hash)


def _get(db: Connection, key_id: str) -> KeyRow:
    row = credentials.key(db, key_id)
    if row is None:
        raise api_error("not_found", f"not found: API key {key_id}", 404)
    return row


def _checked_name(name: str) -> str:
    name = name.strip()
    if not 0 < len(name.encode("utf-8", "replace")) <= _LONGEST_NAME_BYTES:
        raise _invalid(f"a key needs a name of 1 to {_LONGEST_NAME_BYTES} bytes")
    return name


def _checked_scopes(scopes: Sequence[str]) -> str:
    known = sorted(Scope)
    unknown = [str(scope) for scope in scopes if scope not in known]
    if unknown or not scopes:
        what = f"{unknown[0][:80]!r} is no scope" if unknown else "a key needs a scope"
        raise _invalid(f"{what}; there are {', '.join(known)}")
    return " ".join(sorted(set(scopes)))


def _invalid(detail: str) -> APIError:
    return api_error("validation_error", f"validation error: {detail}", 400)
