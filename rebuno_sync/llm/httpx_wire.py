"""Model calls through httpx2 and httpx, which are one library by two names here."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from .recorder import RANDOMISED, Recorder
from .wire import Asked, Received, Reply, Stream, is_json, retry_of

if TYPE_CHECKING:
    import httpx2

__all__ = ["LIBRARIES", "exchange", "httpx_client", "httpx_transport"]

LIBRARIES = ("httpx2", "httpx")

_READ_SECONDS, _CONNECT_SECONDS = 600.0, 5.0


def httpx_client(
    *,
    library: str | None = None,
    outside: str = "raise",
    ignore: Collection[str] = RANDOMISED,
    **options: Any,
) -> httpx2.Client:
    """An ``httpx2.Client`` whose JSON requests, inside an execution, are model calls.

    ``library``: ``"httpx2"`` or ``"httpx"``; the first that is installed unless given.
    ``outside``: what happens outside an execution, and in a thread that has lost it: ``"raise"``
    (``NoActiveExecution``) or ``"passthrough"``. ``ignore``: members of the request body that are
    no part of a call's identity. ``options``: of the client; it waits ten minutes for an answer
    and follows redirections unless they say otherwise.

    Raises ``ImportError`` naming the extra when neither is installed.
    """
    httpx = _library(library)
    recorder = Recorder("a recording HTTP client", outside=outside, ignore=ignore)
    options.setdefault("timeout", httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS))
    options.setdefault("follow_redirects", True)
    client = _classes(httpx).client(recorder, **options)
    # The client chooses among these by proxy; they are made from its options, by itself.
    client._transport = _classes(httpx).transport(client._transport, recorder)
    client._mounts = {
        pattern: transport and _classes(httpx).transport(transport, recorder)
        for pattern, transport in client._mounts.items()
    }
    return client


def httpx_transport(
    transport: httpx2.BaseTransport | None = None,
    *,
    library: str | None = None,
    outside: str = "raise",
    ignore: Collection[str] = RANDOMISED,
) -> httpx2.BaseTransport:
    """A transport for a client of your own, around the one that sends (an ``HTTPTransport`` unless
    given). The rest as of ``httpx_client``."""
    httpx = _library(library)
    recorder = Recorder("a recording HTTP client", outside=outside, ignore=ignore)
    inner = httpx.HTTPTransport() if transport is None else transport
    return _classes(httpx).transport(inner, recorder)


def _library(name: str | None) -> Any:
    if name is not None and name not in LIBRARIES:
        raise ValueError(f"library must be 'httpx2' or 'httpx', not {name!r}")
    for candidate in LIBRARIES if name is None else (name,):
        try:
            return importlib.import_module(candidate)
        except ModuleNotFoundError as error:
            if error.name != candidate:
                raise
    raise ImportError(f"{name or 'httpx2'} is not installed: pip install 'rebuno-sync[httpx]'")


class _Classes:
    """What has to be a subclass of the library's own."""

    def __init__(self, httpx: Any) -> None:
        class RecordingTransport(httpx.BaseTransport):  # type: ignore[misc]
            def __init__(self, transport: Any, recorder: Recorder) -> None:
                self._transport = transport
                self._recorder = recorder

            def handle_request(self, request: Any) -> Any:
                send = self._transport.handle_request
                found = exchange(httpx, self._recorder, send, request)
                return send(request) if found is None else found

            def close(self) -> None:
                self._transport.close()

        class RecordingClient(httpx.Client):  # type: ignore[misc]
            def __init__(self, recorder: Recorder, **options: Any) -> None:
                super().__init__(**options)
                self._recorder = recorder

            def build_request(self, *args: Any, **kwargs: Any) -> Any:
                request = super().build_request(*args, **kwargs)
                self._recorder.expect_execution(_asked(httpx, request))
                return request

        class Body(httpx.SyncByteStream):  # type: ignore[misc]
            def __init__(self, stream: Stream) -> None:
                self._stream = stream

            def __iter__(self) -> Iterator[bytes]:
                return iter(self._stream)

            def close(self) -> None:
                self._stream.close()

        self.transport = RecordingTransport
        self.client = RecordingClient
        self.body = Body


_classes = cache(_Classes)


def exchange(
    httpx: Any, recorder: Recorder, send: Callable[[Any], Any], request: Any
) -> Any | None:
    """The response to a model call, or ``None`` for another request. ``send``: as a transport's
    ``handle_request``."""
    reply = recorder.exchange(_asked(httpx, request), _Wire(httpx, send, request))
    return None if reply is None else _response(httpx, reply, request)


def _asked(httpx: Any, request: Any) -> Asked:
    kind = request.headers.get("content-type", "")
    body = None
    if is_json(kind) and (kind or isinstance(request.stream, httpx.ByteStream)):
        body = request.read()
    return Asked(str(request.url), kind, body, retry_of(request.headers))


class _Wire:
    def __init__(self, httpx: Any, send: Callable[[Any], Any], request: Any) -> None:
        self._httpx = httpx
        self._send = send
        self._request = request

    def send(self, headers: Mapping[str, str]) -> Received:
        for name, value in headers.items():
            self._request.headers.setdefault(name, value)
        response = self._send(self._request)
        found = {name.lower(): value for name, value in response.headers.items()}
        return Received(response.status_code, found, response.iter_bytes(), response.close)

    def refusal(self, message: str, reply: Reply) -> Reply:
        return reply

    def error(self, name: str, message: str) -> Exception:
        kind = getattr(self._httpx, name.rpartition(".")[2], None)
        if not (isinstance(kind, type) and issubclass(kind, self._httpx.RequestError)):
            kind = self._httpx.ReadError
        error: Exception = kind(message, request=self._request)
        return error


def _response(httpx: Any, reply: Reply, request: Any) -> Any:
    if isinstance(reply.body, bytes):
        return httpx.Response(
            reply.status, headers=reply.headers, content=reply.body, request=request
        )
    body = _classes(httpx).body(reply.body)
    return httpx.Response(reply.status, headers=reply.headers, stream=body, request=request)
