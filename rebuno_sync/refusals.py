"""Refusals of model calls, as a provider's client sees them and back (protocol.md 13.9)."""

from __future__ import annotations

import json
import re

from .errors import (
    Blocked,
    LeaseSuperseded,
    PolicyError,
    RateLimited,
    Terminated,
)

__all__ = ["raise_for_refusal", "refusal_response"]

_MARKER = re.compile(r"rebuno_refusal: (\w+)(?: reason=([^\n]*))?")
_MOST_CAUSES = 10


def refusal_response(refusal: PolicyError | RateLimited) -> tuple[int, str]:
    """The status and the JSON body that stand for a call which was refused."""
    denied = isinstance(refusal, PolicyError)
    word = "denied" if denied else "rate_limited"
    reason = refusal.message if isinstance(refusal, PolicyError) else str(refusal)
    message = f"rebuno_refusal: {word}" + (f" reason={reason}" if reason else "")
    # AWS reads the message at the top, everybody else in ``error``.
    body = {"error": {"type": "rebuno_refusal", "message": message}, "message": message}
    return 403 if denied else 429, json.dumps(body)


def raise_for_refusal(error: BaseException) -> None:
    """Raise what refused a model call, if that is why a provider's client raised ``error``.

    Looks for the marker in ``error`` and what caused it. Raises ``PolicyError`` or ``RateLimited``,
    or the signal of a gateway's refusal (``Blocked``, ``Terminated``, ``LeaseSuperseded``);
    returns when there is none.
    """
    cause: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if cause is None:
            return
        found = _MARKER.search(str(cause))
        if found is not None:
            _raise(found.group(1), (found.group(2) or "").rstrip("\"'} \r\n\\"), error)
            return
        cause = cause.__cause__ or cause.__context__


def _raise(word: str, reason: str, error: BaseException) -> None:
    match word:
        case "denied":
            raise PolicyError(reason or "policy_denied") from error
        case "rate_limited":
            raise RateLimited(reason or "rate_limit_exceeded") from error
        case "blocked" | "execution_blocked":
            raise Blocked(reason or word) from error
        case "execution_terminal":
            raise Terminated(reason or word) from error
        case "lease_superseded":
            raise LeaseSuperseded(reason or word) from error
