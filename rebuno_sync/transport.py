"""HTTP exchanges with one server on connections that are kept.

A connection is urllib3's (its TLS, time-outs and proxies); the exchange on it is
``http.client``'s, at its cost. What callers need to know of a failure is one thing: whether the
request can have reached the server (``NetworkError.repeatable``).
"""

from __future__ import annotations

import http.client
import logging
import os
import select
import weakref
from collections.abc import Iterable
from typing import NamedTuple

import requests.utils
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError
from urllib3.util import Url, parse_url

from .clock import SYSTEM
from .errors import NetworkError

__all__ = ["Reply", "Transport"]

_log = logging.getLogger(__name__)

_MOST_IDLE = 64


class Reply(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Transport:
    """Exchanges with the server at ``base_url``. Thread-safe; each exchange has a connection to
    itself.

    ``timeout``: seconds for connecting, and for each wait for bytes. Proxies and certificates are
    found in the environment as ``requests`` does (``HTTPS_PROXY``, ``NO_PROXY``,
    ``REQUESTS_CA_BUNDLE``).
    """

    def __init__(self, base_url: str, *, timeout: float = 35.0) -> None:
        self.base_url = base_url.rstrip("/")
        url = parse_url(self.base_url)
        if url.scheme not in ("http", "https") or not url.host:
            raise ValueError(
                f"base_url must be an http:// or https:// address with a host, not {base_url!r}"
            )
        self._url = url
        self._timeout = timeout
        self._prefix = (url.path or "").rstrip("/")
        self._host_header = url.netloc or ""
        self._proxy = _proxy_for(self.base_url)
        self._idle: list[HTTPConnection] = []
        self._closed = False
        self.quickest = float("inf")
        """Seconds that the quickest answer took: what the line and the kernel take when idle."""
        weakref.finalize(self, _close_all, self._idle)
        _transports.add(self)

    def target(self, path: str) -> str:
        """The request target of ``path``: below the base URL's own path (protocol.md 1.5, field
        3)."""
        return self._prefix + path

    def send(
        self, method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes = b""
    ) -> Reply:
        """One exchange. Redirects are not followed, nothing is repeated.

        Raises ``NetworkError``, ``repeatable`` when no byte of the request has left.
        """
        request = self._head(method, target, headers, body)
        try:
            connection = self._take()
        except NetworkError as error:
            if _away.setdefault(self.base_url, mark := object()) is mark:
                _log.warning("%s What asks it goes on when it is back.", error)
            raise
        response = http.client.HTTPResponse(connection.sock, method=method)
        sent = SYSTEM.monotonic()
        try:
            connection.sock.sendall(request)
            response.begin()
            content = response.read()
        except BaseException as error:
            response.close()
            connection.close()
            if isinstance(error, (OSError, http.client.HTTPException)):
                raise NetworkError(
                    f"the answer of {self.base_url} to {method} {target} was lost: {_said(error)}"
                ) from error
            raise
        self.quickest = min(self.quickest, SYSTEM.monotonic() - sent)
        if _away and _away.pop(self.base_url, None) is not None:
            _log.info("the kernel at %s is back", self.base_url)
        if response.will_close or self._closed:
            connection.close()
        elif len(self._idle) < _MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.close()
        return Reply(response.status, response.headers, content)

    def _head(
        self, method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes
    ) -> bytes:
        where = target
        if self._proxy and self._url.scheme == "http":
            where = f"http://{self._host_header}{target}"
        lines = [f"{method} {where} HTTP/1.1", f"Host: {self._host_header}"]
        lines += [f"{name}: {value}" for name, value in headers]
        lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body

    def _take(self) -> HTTPConnection:
        """A live connection: an idle one on which nothing has arrived since, or a fresh one."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._connect()
            if _is_quiet(connection):
                return connection
            connection.close()

    def _connect(self) -> HTTPConnection:
        connection = self._new_connection()
        try:
            connection.connect()
        except (OSError, HTTPError, http.client.HTTPException) as error:
            connection.close()
            raise NetworkError(
                f"cannot connect to {self.base_url}: {_said(error)}. Is the kernel running there?",
                repeatable=True,
            ) from error
        return connection

    def _new_connection(self) -> HTTPConnection:
        url, proxy = self._url, self._proxy
        assert url.host is not None
        host, port = (proxy.host or "", proxy.port) if proxy else (url.host, url.port)
        if url.scheme == "http":
            return HTTPConnection(host.strip("[]"), port or 80, timeout=self._timeout)
        secure = HTTPSConnection(
            host.strip("[]"),
            port or 443,
            timeout=self._timeout,
            cert_reqs="CERT_REQUIRED",
            ca_certs=os.environ.get("REQUESTS_CA_BUNDLE") or requests.utils.DEFAULT_CA_BUNDLE_PATH,
        )
        if proxy:
            secure.set_tunnel(url.host.strip("[]"), url.port or 443, scheme="https")
        return secure

    def close(self) -> None:
        """Keep no connection from now on; exchanges under way end by themselves."""
        self._closed = True
        _close_all(self._idle)


def _close_all(connections: list[HTTPConnection]) -> None:
    while connections:
        connections.pop().close()


def _is_quiet(connection: HTTPConnection) -> bool:
    """Whether an idle connection is still open: a closed one, or one with stray bytes, is
    readable."""
    if connection.sock is None:
        return False
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _proxy_for(url: str) -> Url | None:
    proxies = requests.utils.get_environ_proxies(url, no_proxy=None)
    proxy = requests.utils.select_proxy(url, proxies)
    return parse_url(proxy) if proxy else None


_away: dict[str, object] = {}
"""Kernels that could not be reached the last time, by their address: told of once."""

_transports: weakref.WeakSet[Transport] = weakref.WeakSet()


def _forget_inherited() -> None:
    """A forked child shares the parent's connections, and must not speak on them."""
    for transport in list(_transports):
        _close_all(transport._idle)  # The child's descriptors only: nothing is sent.


os.register_at_fork(after_in_child=_forget_inherited)
