"""Model calls through ``requests``."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import requests
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.structures import CaseInsensitiveDict
from requests.utils import get_encoding_from_headers
from urllib3.exceptions import DecodeError, ProtocolError, ReadTimeoutError, SSLError

from .raw_bodies import RawBody, chunks_of
from .recorder import RANDOMISED, Recorder
from .wire import Asked, Received, Reply, is_json, retry_of

__all__ = ["RecordingAdapter", "exchange", "http_client"]

Send = Callable[..., requests.Response]


def http_client(
    *, outside: str = "raise", ignore: Collection[str] = RANDOMISED
) -> requests.Session:
    """A ``requests.Session`` whose JSON requests, inside an execution, are model calls.

    ``outside``: what happens outside an execution, and in a thread that has lost it:
    ``"raise"`` (``NoActiveExecution``) or ``"passthrough"``. ``ignore``: members of the request
    body that are no part of a call's identity.

    Hooks, proxies and certificates are the session's as ever; for retries of your own mount
    ``rebuno_sync.llm.RecordingAdapter(HTTPAdapter(max_retries=...))``.
    """
    session = requests.Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, RecordingAdapter(outside=outside, ignore=ignore))
    return session


class RecordingAdapter(BaseAdapter):
    """A transport adapter that records the model calls which another one makes.

    ``adapter``: the one that sends, a plain ``HTTPAdapter`` unless given. The rest as of
    ``http_client``.
    """

    def __init__(
        self,
        adapter: BaseAdapter | None = None,
        *,
        outside: str = "raise",
        ignore: Collection[str] = RANDOMISED,
    ) -> None:
        super().__init__()
        self._adapter = adapter or HTTPAdapter()
        self._recorder = Recorder("a recording HTTP client", outside=outside, ignore=ignore)

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        """As of ``HTTPAdapter``."""
        options = {"timeout": timeout, "verify": verify, "cert": cert, "proxies": proxies}
        recorded = exchange(self._recorder, self._adapter.send, request, options)
        if recorded is not None:
            recorded.connection = self  # type: ignore[assignment]
            return recorded
        return self._adapter.send(request, stream=stream, **options)

    def close(self) -> None:
        """Close the adapter that sends."""
        self._adapter.close()


def exchange(
    recorder: Recorder,
    send: Send,
    request: requests.PreparedRequest,
    options: Mapping[str, Any],
) -> requests.Response | None:
    """The response to a model call, or ``None`` for another request.

    ``send``: sends a request as an adapter does, with ``options``.
    """
    wire = _Wire(send, request, options)
    reply = recorder.exchange(_asked(request), wire)
    return None if reply is None else _response(reply, request)


def _asked(request: requests.PreparedRequest) -> Asked:
    kind = _text(request.headers.get("Content-Type", ""))
    body = request.body
    if isinstance(body, str):
        body = body.encode("utf-8", "surrogatepass")
    if not is_json(kind):
        body = None
    elif not isinstance(body, bytes):
        body = _whole(request) if kind else None
    headers = {_text(name).lower(): _text(value) for name, value in request.headers.items()}
    return Asked(request.url or "", kind, body, retry_of(headers))


def _whole(request: requests.PreparedRequest) -> bytes | None:
    """A JSON body that is not at hand as bytes (a file, a generator), which it then is."""
    body: Any = request.body
    if body is None:
        return None
    if hasattr(body, "read"):
        body = body.read()
    elif not isinstance(body, bytearray | memoryview):
        body = b"".join(part.encode() if isinstance(part, str) else part for part in body)
    request.body = body.encode() if isinstance(body, str) else bytes(body)
    # Of a file, to which a redirection would rewind.
    request._body_position = None  # type: ignore[attr-defined]
    return request.body


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


class _Wire:
    def __init__(
        self, send: Send, request: requests.PreparedRequest, options: Mapping[str, Any]
    ) -> None:
        self._send = send
        self._request = request
        self._options = options

    def send(self, headers: Mapping[str, str]) -> Received:
        for name, value in headers.items():
            self._request.headers.setdefault(name, value)
        response = self._send(self._request, stream=True, **self._options)
        found = {name.lower(): value for name, value in response.headers.items()}
        return Received(response.status_code, found, _chunks(response), response.close)

    def refusal(self, message: str, reply: Reply) -> Reply:
        return reply

    def error(self, name: str, message: str) -> Exception:
        kind = getattr(requests.exceptions, name.rpartition(".")[2], None)
        if not (isinstance(kind, type) and issubclass(kind, requests.RequestException)):
            kind = requests.ConnectionError
        return kind(message, request=self._request)


def _chunks(response: requests.Response) -> Iterator[bytes]:
    """The body, with the errors that ``Response.iter_content`` raises."""
    try:
        yield from chunks_of(response.raw)
    except ProtocolError as error:
        raise requests.exceptions.ChunkedEncodingError(error) from error
    except DecodeError as error:
        raise requests.exceptions.ContentDecodingError(error) from error
    except ReadTimeoutError as error:
        raise requests.exceptions.ConnectionError(error) from error
    except SSLError as error:
        raise requests.exceptions.SSLError(error) from error


def _response(reply: Reply, request: requests.PreparedRequest) -> requests.Response:
    response = requests.Response()
    response.status_code = reply.status
    response.headers = CaseInsensitiveDict(reply.headers)
    response.encoding = get_encoding_from_headers(response.headers)
    response.reason = http.client.responses.get(reply.status, "")
    response.url = request.url or ""
    response.request = request
    response.raw = RawBody(reply)
    return response
