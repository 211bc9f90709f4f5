"""``KernelApp``: the kernel as a WSGI application."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from ...errors import APIError, StorageError, api_error
from .auth import Authenticator
from .call import Call, failed
from .event_stream import EventStream
from .metrics import Metrics
from .openapi import Asks, document
from .request import Request, Response
from .routes import ROUTES, Found, find
from .scopes import scopes_of

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

    from ..embedded import Kernel

__all__ = ["KernelApp"]

_log = logging.getLogger(__name__)

_STATUS_LINES = {
    200: "200 OK",
    201: "201 Created",
    204: "204 No Content",
    400: "400 Bad Request",
    401: "401 Unauthorized",
    403: "403 Forbidden",
    404: "404 Not Found",
    405: "405 Method Not Allowed",
    409: "409 Conflict",
    500: "500 Internal Server Error",
    503: "503 Service Unavailable",
}

_NO_CONTENT = 204

_NO_SUCH_PATH = Response(404, b"404 page not found\n", "text/plain; charset=utf-8")


class KernelApp:
    """Serves one kernel to operators and agents (protocol.md 1, 2); for any threaded WSGI server.

    ``token``: what operators send as their bearer token; it may do everything, an API key what its
    scopes say. Without a token whoever sends no ``Authorization`` may do everything.
    ``accept_body_signatures``: whether agents may sign the body alone (protocol.md 1.4). Such
    a request can be sent again by whoever has seen it, so otherwise only those may that were
    registered with ``"signature": "body"``.
    """

    def __init__(
        self, kernel: Kernel, token: str = "", *, accept_body_signatures: bool = False
    ) -> None:
        self._core = kernel.core
        self._metrics = Metrics(kernel.core)
        self._authenticator = Authenticator(
            token,
            accept_body_signatures,
            self._core.agents.find,
            self._core.keys.scopes_of,
            lambda: self._core.clock.wall() // 1_000_000,
        )

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        answer, route = self._answer(environ)
        status = 200 if isinstance(answer, EventStream) else answer.status
        self._metrics.count(_method(environ), route, status)
        if isinstance(answer, EventStream):
            start(answer.status, list(answer.headers))
            return answer
        status, body, content_type, headers = answer
        sent = list(headers)
        if status != _NO_CONTENT:
            sent.append(("Content-Length", str(len(body))))
        if content_type:
            sent.append(("Content-Type", content_type))
        start(_STATUS_LINES[status], sent)
        return [body] if body else []

    def _answer(self, environ: WSGIEnvironment) -> tuple[Response | EventStream, str]:
        """The answer, and the route that gave it; empty when there is none."""
        pattern = ""
        try:
            request = Request(environ)
            found = find(request.path)
            if found is None:
                return _NO_SUCH_PATH, pattern
            pattern = found.pattern
            return self._serve(request, found), pattern
        except APIError as error:
            return failed(error), pattern
        except StorageError as error:
            # Whether it was recorded is unknown: no 500, which says that it was not.
            _log.error("%s", error)
            answer = api_error("internal_error", "the kernel's file cannot be used", 503)
        except Exception:
            _log.exception("a request failed: %r", environ.get("PATH_INFO"))
            answer = api_error("internal_error", "the kernel failed; see its log", 500)
        return failed(answer), pattern

    def _serve(self, request: Request, found: Found) -> Response | EventStream:
        route = found.methods.get(request.method)
        if route is None:
            return Response(405, content_type="", headers=(("Allow", ", ".join(found.methods)),))
        scopes = scopes_of(found.pattern, request.method)
        principal = self._authenticator.principal(route.auth, scopes, request)
        call = Call(
            self._core,
            request,
            principal,
            found.names,
            self._metrics,
            lambda more: self._authenticator.check_bearer(more, request),
            _document,
        )
        return route.handle(call)


@cache
def _document() -> bytes:
    routes = [
        Asks(method, pattern, route.auth)
        for pattern, methods in ROUTES.items()
        for method, route in methods.items()
    ]
    return document(routes) + b"\n"


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def _method(environ: WSGIEnvironment) -> str:
    """For counting: whoever makes up methods makes no more than one series."""
    method = environ.get("REQUEST_METHOD", "")
    return method if method in _METHODS else "other"
