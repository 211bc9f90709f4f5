"""Responses <-> the JSON that is recorded of them (protocol.md 13.9).

``{"status", "headers": {"content-type", ...}, "body"}``. Beyond the protocol's: a few more headers
that clients read, ``"encoding": "base64"`` for a body that is no text, and
``"truncated": true`` for a stream that its reader closed before the end.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from ..failures import encode_failure
from .wire import Reply

__all__ = ["envelope", "is_binary", "is_stream", "reply_of", "response_failure", "stream_failure"]

_AMAZON = "application/vnd.amazon.eventstream"
_STREAMS = frozenset({"text/event-stream", "application/x-ndjson", _AMAZON})
_KEPT = frozenset(
    {"content-type", "location", "request-id", "x-request-id"}
    | {"retry-after", "retry-after-ms", "x-should-retry", "www-authenticate"}
)
_MOST_SAID = 2000


def media_type(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def is_stream(headers: Mapping[str, str]) -> bool:
    """Whether a response is one by its content type."""
    return media_type(headers) in _STREAMS


def is_binary(headers: Mapping[str, str]) -> bool:
    """Whether a stream is of frames of bytes, nothing to show while it arrives."""
    return media_type(headers) == _AMAZON


def envelope(
    status: int, headers: Mapping[str, str], body: bytes, *, truncated: bool = False
) -> dict[str, Any]:
    """What is recorded of a response. ``headers``: by lower-case name."""
    kept = {
        name: value
        for name, value in headers.items()
        if name in _KEPT or name.startswith("x-amzn-")
    }
    recorded: dict[str, Any] = {
        "status": status,
        "headers": {"content-type": "application/json", **kept},
    }
    text = _text(body)
    if text is None:
        recorded |= {"body": base64.b64encode(body).decode(), "encoding": "base64"}
    else:
        recorded["body"] = text
    return recorded | ({"truncated": True} if truncated else {})


def _text(body: bytes) -> str | None:
    """``None`` for what is no text that every kernel stores: some refuse NUL."""
    try:
        return None if b"\0" in body else body.decode()
    except UnicodeDecodeError:
        return None


def reply_of(record: Any) -> Reply:
    """The response that was recorded. What is no envelope is itself the JSON of one."""
    if not isinstance(record, dict) or not isinstance(record.get("body"), str):
        body = json.dumps(record).encode()
        return Reply(200, {"content-type": "application/json"}, body)
    text = record["body"]
    body = base64.b64decode(text) if record.get("encoding") == "base64" else text.encode()
    headers = {str(name).lower(): str(value) for name, value in record["headers"].items()}
    return Reply(int(record["status"]), headers, body)


def response_failure(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The failure of a call that was answered with an error."""
    said = recorded["body"] if recorded.get("encoding") is None else ""
    message = f"the provider answered {recorded['status']}: {said[:_MOST_SAID]}"
    return {"message": message, "response": dict(recorded)}


def stream_failure(
    error: BaseException, recorded: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The failure of a call that raised ``error``, after the part of a stream that is recorded."""
    failure: dict[str, Any] = json.loads(encode_failure(error))
    for bulky in ("args", "state", "omitted", "members"):
        failure.pop(bulky, None)
    return failure | ({} if recorded is None else {"response": dict(recorded)})
