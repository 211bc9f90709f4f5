"""One webhook: its body, its headers, and what its answer means (protocol.md 4)."""

from __future__ import annotations

import json
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from ..errors import NetworkError
from ..ports import Deliver
from ..signing import sign_body
from ..types import LeaseKey
from .store.rows import AgentRow

__all__ = ["EXTENSIONS", "Refused", "deliver_webhook"]

EXTENSIONS = (
    *("request-id", "batch", "leases", "release", "wake", "attempts", "cancel-notice", "runner"),
    "besides",
)
"""What this kernel understands beyond the protocol (protocol.md 17, and the service page)."""

DELIVERY_SECONDS = 30.0

_UNAUTHORIZED = 401
_UNAVAILABLE = 503


class Refused(NamedTuple):
    """Why an attempt was not delivered."""

    reason: str
    away: bool = False
    """The agent cannot be reached, or takes nothing now; it has not looked at the attempt."""
    hangs: bool = False


def deliver_webhook(
    deliver: Deliver, agent: AgentRow, lease: LeaseKey, lease_seconds: float, *, event: str = ""
) -> Refused | None:
    """Send it once; ``None`` when it was taken."""
    body = _body(lease, lease_seconds, event)
    headers = [
        ("Content-Type", "application/json"),
        ("Rebuno-Signature", sign_body(agent.secret, body)),
        ("Rebuno-Execution-Id", lease.execution_id),
        ("Rebuno-Extensions", ", ".join(EXTENSIONS)),
    ]
    where = f"agent {agent.id!r} at {_shown(agent.webhook_url)!r}"
    try:
        status = deliver(agent.webhook_url, headers, body, DELIVERY_SECONDS)
    except TimeoutError:
        reason = f"{where} has not answered within {DELIVERY_SECONDS:.0f} s"
        return Refused(reason, hangs=True)
    except NetworkError as error:
        return Refused(f"{where}: {error}", away=error.repeatable)
    except ValueError as error:
        return Refused(f"{where} has an address that is none: {error}")
    if 200 <= status < 300:
        return None
    reason = f"{where} answered {status}"
    if status == _UNAUTHORIZED:
        reason += (
            ": is its secret (Agent(secret=...), REBUNO_AGENT_SECRET) the one it is registered"
        )
        reason += " with?"
    return Refused(reason, away=status == _UNAVAILABLE)


def _shown(url: str) -> str:
    """The address for logs and events: a password or a query may be a secret."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=host, query="", fragment=""))


def _body(lease: LeaseKey, lease_seconds: float, event: str) -> bytes:
    fields: dict[str, object] = {
        "execution_id": lease.execution_id,
        "dispatch_id": lease.dispatch_id,
        "dispatch_attempt": lease.attempt,
        "lease_timeout_seconds": int(lease_seconds)
        if lease_seconds.is_integer()
        else lease_seconds,
    }
    if event:
        fields["event"] = event
    return json.dumps(fields, separators=(",", ":")).encode()
