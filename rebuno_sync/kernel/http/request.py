"""A request as the routes see it: what was sent, before anything is read from it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs, quote

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

__all__ = ["JSON", "LARGEST_BODY", "Request", "Response"]

LARGEST_BODY = 10 * 2**20

JSON = "application/json; charset=utf-8"

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_SAFE = "/:@!$&'()*+,;=~"


class Response(NamedTuple):
    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


class Request:
    """One request. ``target`` is the escaped path and query as sent: it is what is signed."""

    __slots__ = ("_environ", "_query", "body", "method", "path", "target", "too_large")

    def __init__(self, environ: WSGIEnvironment) -> None:
        """Read a WSGI request, its body up to the limit."""
        self._environ = environ
        self.method: str = environ["REQUEST_METHOD"]
        self.target = _target(environ)
        path, _, self._query = self.target.partition("?")
        prefix = environ.get("SCRIPT_NAME")
        self.path = path.removeprefix(quote(prefix.encode("latin-1"), _SAFE)) if prefix else path
        self.too_large = False
        self.body = self._read()

    def _read(self) -> bytes:
        environ = self._environ
        try:
            length = int(environ.get("CONTENT_LENGTH") or 0)
        except ValueError:
            length = 0
        if length <= 0 and not environ.get("wsgi.input_terminated"):
            return b""
        if length > LARGEST_BODY:
            self.too_large = True
            return b""
        body: bytes = environ["wsgi.input"].read(length if length > 0 else LARGEST_BODY + 1)
        self.too_large = len(body) > LARGEST_BODY
        return body

    def header(self, name: str) -> str:
        """The value of a header, by its WSGI name without ``HTTP_``; empty when not sent."""
        value: str = self._environ.get(f"HTTP_{name}", "")
        return value

    def header_values(self, name: str) -> list[str]:
        """All values that were sent: a server joins repeated headers with commas."""
        value = self._environ.get(f"HTTP_{name}")
        return [] if value is None else value.split(",")

    def query(self, name: str) -> str:
        """The first value of a query parameter; empty when it was not sent."""
        if not self._query:
            return ""
        return parse_qs(self._query, keep_blank_values=True).get(name, [""])[0]

    def integer(self, name: str) -> int | None:
        """A query parameter as a whole number; ``None`` when it is none."""
        text = self.query(name)
        return int(text) if _INTEGER.fullmatch(text) else None


def _target(environ: WSGIEnvironment) -> str:
    raw: str = environ.get("REQUEST_URI") or environ.get("RAW_URI") or ""
    if raw.startswith("/"):
        return raw
    path = (environ.get("SCRIPT_NAME") or "") + (environ.get("PATH_INFO") or "")
    target = quote(path.encode("latin-1"), safe=_SAFE)
    return f"{target}?{environ['QUERY_STRING']}" if environ.get("QUERY_STRING") else target
