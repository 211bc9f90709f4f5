"""Who sends a request: a bearer of the token or of an API key, or an agent by its signature
(protocol.md 1.3 to 1.6)."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from ...errors import APIError, api_error
from ...signing import verify_body, verify_request
from ...types import Scope
from ..store.rows import AgentRow
from .request import Request

__all__ = ["Auth", "Authenticator"]

_log = logging.getLogger(__name__)


class FindAgent(Protocol):
    """Looks an agent up; unless ``fresh``, what it finds may be a moment old."""

    def __call__(self, agent_id: str, *, fresh: bool) -> AgentRow | None: ...


class Auth(Enum):
    """What a route asks for."""

    BEARER = "bearer"
    HMAC = "hmac"
    EITHER = "either"
    NONE = "none"


class Authenticator:
    """Tells who sends a request: the agent's id, or ``""`` for a bearer."""

    def __init__(
        self,
        token: str,
        accept_body_signatures: bool,
        find_agent: FindAgent,
        scopes_of: Callable[[str], frozenset[str] | None],
        now: Callable[[], int],
    ) -> None:
        self._token = token.encode()
        self._accept_body_signatures = accept_body_signatures
        self._find_agent = find_agent
        self._scopes_of = scopes_of
        self._now = now
        self._hinted: set[str] = set()

    def principal(self, auth: Auth, scopes: frozenset[Scope], request: Request) -> str:
        """Raises ``unauthorized`` without a detail, ``forbidden`` for a key without ``scopes``."""
        if auth is Auth.NONE:
            return ""
        signed = request.header("REBUNO_AGENT_ID") or request.header("REBUNO_SIGNATURE")
        if auth is Auth.HMAC or (auth is Auth.EITHER and signed):
            return self._signer(request)
        self.check_bearer(scopes, request)
        return ""

    def check_bearer(self, scopes: frozenset[Scope], request: Request) -> None:
        """Without a token anybody may; a header that is sent must be right all the same."""
        header = request.header("AUTHORIZATION")
        if not header and not self._token:
            _refuse_other_sites(request)
            return
        scheme, _, given = header.partition(" ")
        if scheme != "Bearer":
            raise _unauthorized()
        # WSGI gives header bytes as Latin-1 text.
        if self._token and hmac.compare_digest(given.encode("latin-1", "replace"), self._token):
            return
        granted = self._scopes_of(given)
        if granted is None:
            raise _unauthorized()
        if missing := scopes - granted:
            names = ", ".join(sorted(missing))
            raise api_error("forbidden", f"forbidden: the API key lacks the scope {names}", 403)

    def _signer(self, request: Request) -> str:
        """An agent, by its signature over the request, or over its body where that is accepted."""
        agent_id = _utf8(request.header("REBUNO_AGENT_ID"))
        if agent_id and not request.too_large:
            # What is known of the agent may have changed a moment ago, so a refusal looks again.
            for fresh in (False, True):
                agent = self._find_agent(agent_id, fresh=fresh)
                if agent is not None and self._is_signed_by(agent, request):
                    return agent_id
        raise _unauthorized()

    def _is_signed_by(self, agent: AgentRow, request: Request) -> bool:
        if not agent.secret:
            # Anybody can sign with the empty one.
            self._hint(agent.id, _NO_SECRET)
            return False
        signature = request.header("REBUNO_SIGNATURE")
        if signature.startswith("sha256="):
            if not verify_body((agent.secret,), signature, request.body):
                return False
            if agent.accepts_body_form or self._accept_body_signatures:
                return True
            self._hint(agent.id, _BODY_FORM)
            return False
        return verify_request(
            (agent.secret,),
            method=request.method,
            target=request.target,
            signature=request.header_values("REBUNO_SIGNATURE"),
            timestamp=request.header_values("REBUNO_TIMESTAMP"),
            dispatch_id=request.header_values("REBUNO_DISPATCH_ID"),
            dispatch_attempt=request.header_values("REBUNO_DISPATCH_ATTEMPT"),
            body=request.body,
            now=self._now(),
        )

    def _hint(self, agent_id: str, why: str) -> None:
        """Say once why an agent is refused that may well be right: it is only told 401."""
        if agent_id not in self._hinted:
            self._hinted.add(agent_id)
            _log.warning("agent %r %s", agent_id, why)


_BODY_FORM = (
    "signs in the body form, which anybody who has seen a request can send again, so it is refused;"
    ' register the agent with "signature": "body" or start the kernel with'
    " --accept-body-signatures to accept it"
)
_NO_SECRET = (
    "is registered without a secret, so nobody can sign as it and its requests are refused;"
    " register it with the secret that it signs with"
)


def _refuse_other_sites(request: Request) -> None:
    """A browser sends what any page has it send, to addresses of its own machine too; it names the
    page's site."""
    origin = request.header("ORIGIN")
    if origin and origin.partition("://")[2] != request.header("HOST"):
        raise api_error(
            "forbidden",
            f"forbidden: a page of {origin} may not ask a kernel that has no token",
            403,
        )


def _unauthorized() -> APIError:
    return api_error("unauthorized", "unauthorized", 401)


def _utf8(header: str) -> str:
    """A header's text as it was meant; WSGI gives its bytes as Latin-1."""
    if header.isascii():
        return header
    return header.encode("latin-1", "replace").decode("utf-8", "replace")
