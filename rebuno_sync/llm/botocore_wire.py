"""Model calls through botocore: Amazon Bedrock."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

from .raw_bodies import RawBody, chunks_of
from .recorder import RANDOMISED, Recorder
from .wire import Asked, Received, Reply, is_json, retry_of

__all__ = ["exchange", "record_boto"]

C = TypeVar("C")


def record_boto(client: C, *, outside: str = "raise", ignore: Collection[str] = RANDOMISED) -> C:
    """Make the JSON requests of a boto3 client (``bedrock-runtime``), inside an execution, model
    calls; returns the client.

    ``outside`` and ``ignore`` as of ``rebuno_sync.http_client``.
    """
    recorder = Recorder("a recording boto3 client", outside=outside, ignore=ignore)
    endpoint: Any = client._endpoint  # type: ignore[attr-defined]
    endpoint.http_session = _Session(endpoint.http_session, recorder)
    return client


class _Session:
    """The HTTP session of a client, around the one that sends."""

    def __init__(self, session: Any, recorder: Recorder) -> None:
        self._session = session
        self._recorder = recorder

    def send(self, request: Any) -> Any:
        send = self._session.send
        found = exchange(self._recorder, send, request)
        return send(request) if found is None else found

    def close(self) -> None:
        self._session.close()


def exchange(recorder: Recorder, send: Callable[[Any], Any], request: Any) -> Any | None:
    """The response to a model call, or ``None`` for another request. ``send``: as of a
    ``URLLib3Session``."""
    reply = recorder.exchange(_asked(request), _Wire(send, request))
    return None if reply is None else _response(reply, request)


def _asked(request: Any) -> Asked:
    headers = {str(name).lower(): _text(value) for name, value in request.headers.items()}
    kind = headers.get("content-type", "")
    body = request.body
    if isinstance(body, str):
        body = body.encode()
    if not isinstance(body, bytes | bytearray) or not is_json(kind):
        body = None
    return Asked(request.url, kind, body and bytes(body), retry_of(headers))


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


class _Wire:
    def __init__(self, send: Callable[[Any], Any], request: Any) -> None:
        self._send = send
        self._request = request

    def send(self, headers: Mapping[str, str]) -> Received:
        # Headers are not added: the request is signed, and Bedrock takes no idempotency key.
        response = self._send(self._request)
        found = {str(name).lower(): _text(value) for name, value in response.headers.items()}
        return Received(response.status_code, found, _chunks(response), response.raw.close)

    def refusal(self, message: str, reply: Reply) -> Reply:
        kind = "AccessDeniedException" if reply.status == 403 else "ThrottlingException"
        body = json.dumps({"message": message}).encode()
        return Reply(reply.status, {**reply.headers, "x-amzn-errortype": kind}, body)

    def error(self, name: str, message: str) -> Exception:
        exceptions = importlib.import_module("botocore.exceptions")
        kind = getattr(exceptions, name.rpartition(".")[2], None)
        if not (isinstance(kind, type) and issubclass(kind, exceptions.HTTPClientError)):
            kind = exceptions.HTTPClientError
        error: Exception = kind(
            endpoint_url=self._request.url, proxy_url="", error=message, request=self._request
        )
        return error


def _chunks(response: Any) -> Iterator[bytes]:
    # A body that the client does not want as a stream has been read already.
    if response._content is not None:
        yield response._content
    else:
        yield from chunks_of(response.raw)


def _response(reply: Reply, request: Any) -> Any:
    awsrequest = importlib.import_module("botocore.awsrequest")
    return awsrequest.AWSResponse(request.url, reply.status, reply.headers, RawBody(reply))
