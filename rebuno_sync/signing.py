"""Both forms of an agent's signature: over the body (protocol.md 1.4), over the request (1.5).

Everything here works on what was sent: raw body bytes, and header text with one character per
byte (Latin-1), as HTTP libraries and WSGI servers hand it over. Verify before parsing.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

__all__ = ["MAX_SKEW_SECONDS", "sign_body", "sign_request", "verify_body", "verify_request"]

MAX_SKEW_SECONDS = 300
"""How far a request's timestamp may be from the verifier's time, either way, inclusive."""

_BODY_SCHEME = "sha256="
_REQUEST_SCHEME = "v1="
_REQUEST_VERSION = "rebuno-request-v1"
_HEAD_LINES = 6

# At most 19 digits that count: what does not fit an int64 is outside the window anyway.
_DECIMAL = re.compile(r"([+-]?)0*([0-9]{1,19})", re.ASCII)


def sign_body(secret: str, body: bytes) -> str:
    """The ``Rebuno-Signature`` of a webhook, and of a request to a kernel before ``v1=``."""
    return _BODY_SCHEME + _hex_digest(secret, body)


def sign_request(
    secret: str,
    *,
    method: str,
    target: str,
    timestamp: str,
    dispatch_id: str,
    dispatch_attempt: str,
    body: bytes,
) -> str:
    """The ``Rebuno-Signature`` of a request in form ``v1=``.

    ``target`` is the escaped path as sent, with any base prefix and the query. ``timestamp``
    (decimal Unix seconds), ``dispatch_id`` and ``dispatch_attempt`` are the texts of their
    headers, ``""`` where a header is not sent. Raises ``ValueError`` when a part has a line break
    or a character that no HTTP header can carry.
    """
    head = _request_head(method, target, timestamp, dispatch_id, dispatch_attempt)
    return _REQUEST_SCHEME + _hex_digest(secret, head, body)


def verify_body(secrets: Iterable[str], header: str | None, body: bytes) -> bool:
    """Whether ``header`` is the body signature of ``body`` under one of ``secrets``.

    A header that is missing or malformed in any way is a wrong signature like every other.
    """
    return _matches_any((sign_body(secret, body) for secret in secrets), header or "")


def verify_request(
    secrets: Iterable[str],
    *,
    method: str,
    target: str,
    signature: Sequence[str],
    timestamp: Sequence[str],
    dispatch_id: Sequence[str],
    dispatch_attempt: Sequence[str],
    body: bytes,
    now: int,
) -> bool:
    """Whether a request carries a fresh ``v1=`` signature of one of ``secrets``.

    ``signature``, ``timestamp``, ``dispatch_id`` and ``dispatch_attempt`` hold every value that
    was received of that header, so that a repeated one is seen and refused; an empty sequence is
    a header that was not sent. ``now`` is in Unix seconds. Every refusal is the same ``False``.
    """
    if max(map(len, (signature, timestamp, dispatch_id, dispatch_attempt))) > 1:
        return False
    sent_at = _only(timestamp)
    if not _is_fresh(sent_at, now):
        return False
    try:
        head = _request_head(method, target, sent_at, _only(dispatch_id), _only(dispatch_attempt))
    except ValueError:
        return False
    expected = (_REQUEST_SCHEME + _hex_digest(secret, head, body) for secret in secrets)
    return _matches_any(expected, _only(signature))


def _only(values: Sequence[str]) -> str:
    return values[0] if values else ""


def _is_fresh(timestamp: str, now: int) -> bool:
    decimal = _DECIMAL.fullmatch(timestamp)
    return decimal is not None and abs(int("".join(decimal.groups())) - now) <= MAX_SKEW_SECONDS


def _request_head(
    method: str, target: str, timestamp: str, dispatch_id: str, dispatch_attempt: str
) -> bytes:
    parts = (_REQUEST_VERSION, method.upper(), target, timestamp, dispatch_id, dispatch_attempt)
    head = "\n".join(parts) + "\n"
    # A line break inside a part would let two different requests share one signature.
    if head.count("\n") != _HEAD_LINES or "\r" in head:
        raise ValueError(
            "a request cannot be signed: its target or one of its Rebuno-Timestamp, "
            "Rebuno-Dispatch-Id and Rebuno-Dispatch-Attempt headers contains a line break; "
            "pass the escaped path and header texts without one"
        )
    return head.encode("latin-1")


def _matches_any(expected: Iterable[str], received: str) -> bool:
    """Compare with every expected signature: no early exit tells which secret came close."""
    # Bytes, since compare_digest refuses non-ASCII text; "?" is in no signature.
    candidate = received.encode("latin-1", "replace")
    matches = False
    for signature in expected:
        matches |= hmac.compare_digest(signature.encode("ascii"), candidate)
    return matches


def _hex_digest(secret: str, *message: bytes) -> str:
    # hmac.digest() gives up the interpreter lock, and beside a CPU-bound thread it takes a whole
    # switch interval (5 ms) to get it back; a copy of a keyed object keeps it and costs 2.4 us.
    mac = _keyed(secret).copy()
    for part in message:
        mac.update(part)
    return mac.hexdigest()


@lru_cache(maxsize=256)
def _keyed(secret: str) -> hmac.HMAC:
    return hmac.new(secret.encode(), digestmod="sha256")
