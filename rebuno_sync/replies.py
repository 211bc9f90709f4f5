"""What a kernel's answer says, as a value or as an error (protocol.md 1.2)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

from pydantic import ValidationError

from .errors import APIError, NetworkError, api_error

__all__ = [
    "asks_for_patience",
    "error_of",
    "no_such_agent",
    "no_such_key",
    "refuses_the_value",
    "understood",
]

T = TypeVar("T")

_ANOTHER = ". Is it a kernel that answers there?"

_GATEWAY = frozenset({502, 503, 504})
_REFUSES_THE_VALUE = frozenset({400, 409, 413, 500})
_ASKS_FOR_PATIENCE = frozenset({408, 425, 429})
_SERVER_ERROR = 500
_UNAUTHORIZED = 401


def understood(what: str, read: Callable[[], T]) -> T:
    """What ``read`` makes of an answer; one that is not the protocol's tells nothing."""
    try:
        return read()
    except ValidationError as error:
        [first, *more] = error.errors(include_url=False, include_input=False)
        where = ".".join(map(str, first["loc"]))
        told = f"{where}: {first['msg']}" + (f" (and {len(more)} more)" if more else "")
        raise NetworkError(f"the answer is not {what}: {told}{_ANOTHER}") from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        told = f"{type(error).__name__}: {error}"
        raise NetworkError(f"the answer is not {what}: {told}{_ANOTHER}") from error


def refuses_the_value(refusal: APIError) -> bool:
    """Whether it is what was sent that the kernel will not have; not who sent it, or when."""
    return refusal.status_code in _REFUSES_THE_VALUE


def asks_for_patience(refusal: APIError) -> bool:
    """Whether the same may be taken later: the kernel, or what is before it, is too busy now."""
    return refusal.status_code in _ASKS_FOR_PATIENCE or refusal.status_code > _SERVER_ERROR


def error_of(
    status: int, body: bytes, what: str, *, unauthorized: str = ""
) -> APIError | NetworkError:
    """The error of a reply to ``what``. ``unauthorized``: what the kernel did not accept, if it is
    that, and what to do; a kernel tells no more."""
    try:
        envelope = json.loads(body)
        code, message = str(envelope["code"]), str(envelope.get("message", ""))
        rule_id = str(envelope.get("rule_id", ""))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        said = body[:200].decode("utf-8", "replace").strip()
        if status >= 500:
            return NetworkError(f"{what} was answered {status} without an envelope: {said}")
        return api_error(APIError.code, said or "request failed", status)
    if status in _GATEWAY:
        return NetworkError(f"{what} was answered {status}: {message}")
    if status == _UNAUTHORIZED and unauthorized:
        message = f"{message}: {unauthorized}"
    return api_error(code, message, status, rule_id)


def no_such_key(base_url: str, key: str) -> str:
    """What an operator is told whom a kernel does not accept."""
    given = "this API key" if key else "a request without an API key"
    return (
        f"{base_url} does not accept {given}: Client(api_key=...), or REBUNO_API_KEY (which"
        " subagent() uses too), has to be the kernel's token or a key of it"
    )


def no_such_agent(base_url: str, agent_id: str) -> str:
    """What an agent is told whom a kernel does not accept."""
    return (
        f"{base_url} knows no agent {agent_id!r} with this secret. Register it there"
        " (Client.register_agent), or give both the same secret (Agent(secret=...), or"
        " REBUNO_AGENT_SECRET); or this machine's clock is wrong"
    )
