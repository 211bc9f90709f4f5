"""An agent's webhook as a WSGI application: any server or framework can mount it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from .webhook import WebhookAnswer

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

__all__ = ["WebhookApp", "read_body", "received_headers"]

_PHRASES = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    503: "Service Unavailable",
}
_LARGEST_WEBHOOK = 64 * 1024
"""Bytes. A kernel's is 200."""


class WebhookApp:
    """Answers ``POST path`` by ``handle``; everything else is 404 or 405."""

    def __init__(self, path: str, handle: Callable[[dict[str, str], bytes], WebhookAnswer]) -> None:
        self._path = path
        self._handle = handle

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = (environ.get("SCRIPT_NAME") or "") + (environ.get("PATH_INFO") or "")
        if path != self._path and environ.get("PATH_INFO") != self._path:
            answer = WebhookAnswer(404, f"no such path; webhooks are taken at {self._path}")
        elif environ["REQUEST_METHOD"] != "POST":
            answer = WebhookAnswer(405, "webhooks are sent by POST")
        else:
            body = read_body(environ, _LARGEST_WEBHOOK)
            if body is None:
                answer = WebhookAnswer(413, f"a webhook has at most {_LARGEST_WEBHOOK} bytes")
            else:
                answer = self._handle(received_headers(environ), body)
        content = answer.reason.encode()
        start(
            f"{answer.status} {_PHRASES[answer.status]}",
            [
                ("Content-Type", "text/plain; charset=utf-8"),
                ("Content-Length", str(len(content))),
            ],
        )
        return [content]


def read_body(environ: WSGIEnvironment, largest: int) -> bytes | None:
    """The raw bytes of a request's body; ``None`` when there are more than ``largest``."""
    try:
        length = int(environ.get("CONTENT_LENGTH") or 0)
    except ValueError:
        length = 0
    if length > largest:
        return None
    if length <= 0 and not environ.get("wsgi.input_terminated"):
        return b""
    body: bytes = environ["wsgi.input"].read(length if length > 0 else largest + 1)
    return body if len(body) <= largest else None


def received_headers(environ: WSGIEnvironment) -> dict[str, str]:
    """Header values by lower-case name."""
    return {
        key[5:].replace("_", "-").lower(): value
        for key, value in environ.items()
        if key.startswith("HTTP_")
    }
