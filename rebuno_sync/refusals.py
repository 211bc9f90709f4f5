"""Refusals of a gateway or of the kernel's transport, found again in what a provider's library made
of them (protocol.md 13.9)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from .errors import Blocked, LeaseSuperseded, PolicyError, RateLimited, Terminated

__all__ = ["raise_for_refusal", "refusal_response"]

_MOST_EXCEPTIONS = 10
_REFUSAL = re.compile(r"rebuno_refusal: (\w+)(?: reason=(.*))?")
_TRAILING = "\"'} \r\n"
"""Of a message that was quoted as part of a JSON text or a dict."""

_SIGNALS = {
    "blocked": Blocked,
    "execution_blocked": Blocked,
    "execution_terminal": Terminated,
    "lease_superseded": LeaseSuperseded,
}


def refusal_response(refusal: PolicyError | RateLimited) -> tuple[int, str, str]:
    """The status, the message and the JSON body that stand for a model call that was refused."""
    denied = isinstance(refusal, PolicyError)
    word = "denied" if denied else "rate_limited"
    reason = refusal.message if isinstance(refusal, PolicyError) else str(refusal)
    message = f"rebuno_refusal: {word}" + (f" reason={reason}" if reason else "")
    body = json.dumps({"error": {"type": "rebuno_refusal", "message": message}})
    return 403 if denied else 429, message, body


def raise_for_refusal(error: BaseException) -> None:
    """Raise what a refusal means, if ``error`` or one of its causes tells of one; else return.

    Provider libraries turn the answer ``rebuno_refusal: denied reason=...`` into exceptions of
    their own. Raises ``PolicyError`` or ``RateLimited`` with the reason, or the signal ``Blocked``,
    ``Terminated`` or ``LeaseSuperseded`` (protocol.md 13.9). A handler need not call it: an
    exception that leaves one is looked at by the agent.
    """
    for text in _texts(error):
        found = _REFUSAL.search(text)
        if found is None:
            continue
        word, reason = found[1], (found[2] or "").rstrip(_TRAILING)
        if word in _SIGNALS:
            raise _SIGNALS[word]() from error
        if word == "denied":
            raise PolicyError(reason or "policy_denied") from error
        if word == "rate_limited":
            raise RateLimited(reason or "rate_limit_exceeded") from error
        return


def _texts(error: BaseException) -> Iterator[str]:
    """What ``error`` and those that it came from say, the outermost first."""
    current: BaseException | None = error
    for _ in range(_MOST_EXCEPTIONS):
        if current is None:
            return
        try:
            yield str(current)
        except Exception:  # one that cannot be printed tells of nothing
            yield ""
        current = current.__cause__ or current.__context__
