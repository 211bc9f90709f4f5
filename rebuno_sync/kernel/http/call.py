"""What a route gets: the request, who sent it, what its path names, and the kernel's core."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from ...errors import APIError
from ...types import LeaseKey, Scope
from ..core import Core
from ..operations import Asked
from ..unfenced import UNNAMED
from .decoding import Fields, bad_request, decode, lease_of, uuid_text
from .encoding import error_json
from .metrics import Metrics
from .request import Request, Response

__all__ = ["Call", "failed", "json_response", "no_content"]


class Call(NamedTuple):
    core: Core
    request: Request
    principal: str
    """The agent that signed; empty for a bearer."""
    names: tuple[str, ...]
    """What the path names, unescaped."""
    metrics: Metrics
    require: Callable[[frozenset[Scope]], None]
    """Raises ``forbidden`` for an API key without these scopes, beside those of the route."""
    document: Callable[[], bytes]
    """The description of all routes, as JSON."""

    @property
    def execution_id(self) -> str:
        found = uuid_text(self.names[0])
        if found is None:
            raise bad_request("the path names no execution: its id must be a UUID")
        return found

    def fields(self, known: frozenset[str]) -> Fields:
        if self.request.too_large:
            raise bad_request("the body has more than 10 MiB")
        return decode(self.request.body, known)

    def asked(self, execution_id: str, *, may_be_unnamed: bool = False) -> Asked:
        """The lease in the headers, with whatever else of them counts.

        ``may_be_unnamed``: whether agents may leave the attempt out that know none.
        """
        request = self.request
        if may_be_unnamed and self._knows_no_attempts:
            dispatch_id = uuid_text(request.header("REBUNO_DISPATCH_ID")) or ""
            return Asked(LeaseKey(execution_id, dispatch_id, UNNAMED), self.principal)
        lease = lease_of(request, execution_id)
        sent_id = request.header("REBUNO_REQUEST_ID")
        if not sent_id:
            return Asked(
                lease,
                self.principal,
                wants_notice=self.wants_notice,
                keeps_tries=self._names("attempts"),
            )
        request_id = uuid_text(sent_id)
        if request_id is None:
            raise bad_request("Rebuno-Request-Id must be a UUID")
        return Asked(
            lease,
            self.principal,
            bytes.fromhex(request_id.replace("-", "")),
            sha256(f"{request.method} {request.target}\n".encode() + request.body).digest(),
            self.wants_notice,
            self._names("attempts"),
        )

    @property
    def _knows_no_attempts(self) -> bool:
        """Those agents are of generations that sign the body alone (protocol.md 0.1)."""
        signature = self.request.header("REBUNO_SIGNATURE")
        return signature.startswith("sha256=") and not self.request.header(
            "REBUNO_DISPATCH_ATTEMPT"
        )

    @property
    def wants_notice(self) -> bool:
        """Whether the agent understands ``cancel-notice`` (protocol.md 17)."""
        return self._names("cancel-notice")

    def _names(self, extension: str) -> bool:
        return extension in self.request.header("REBUNO_EXTENSIONS")


def json_response(text: str, status: int = 200) -> Response:
    return Response(status, text.encode() + b"\n")


def no_content() -> Response:
    return Response(204, content_type="")


def failed(error: APIError) -> Response:
    return json_response(error_json(error), error.status_code)
