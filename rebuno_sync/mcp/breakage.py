"""Which errors say that a session, or the connection below it, is of no more use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from .connection import ConnectionLost

if TYPE_CHECKING:
    import mcp

__all__ = ["checked", "is_broken", "may_come", "was_refused"]

T = TypeVar("T")


def checked(
    request: Callable[[mcp.Client], Awaitable[T]],
) -> Callable[[mcp.Client], Awaitable[T]]:
    """``request``, apart from a server that was started again and knows its session no more: that
    one has not run it."""
    import mcp

    async def asking(session: mcp.Client) -> T:
        try:
            return await request(session)
        except mcp.MCPError as error:
            if _is_forgotten(error):
                raise ConnectionLost(f"the session is over: {error}") from error
            raise

    return asking


def _is_forgotten(error: mcp.MCPError) -> bool:
    """A status 404, which the package hands on as this code with words of the server's."""
    import mcp

    return error.code == mcp.types.INVALID_REQUEST and "session" in error.message.lower()


def is_broken(error: BaseException) -> bool:
    """Whether a request failed for want of a connection, or of a session that the server knows."""
    import httpx2
    import mcp

    if isinstance(error, mcp.MCPError):
        return error.code == mcp.types.CONNECTION_CLOSED or _is_forgotten(error)
    return isinstance(error, (OSError, httpx2.TransportError))


def may_come(lost: ConnectionLost) -> bool:
    """Whether a server that was not reached may be starting."""
    cause = lost.__cause__
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    return cause is not None and is_broken(cause)


def was_refused(lost: ConnectionLost) -> bool:
    """Whether nobody listens where the server should: it does not run, or not yet again."""
    seen: list[BaseException | None] = [lost]
    for error in seen:
        if isinstance(error, ConnectionRefusedError):
            return True
        if isinstance(error, BaseExceptionGroup):
            seen += error.exceptions
        if error is not None:
            seen += (it for it in (error.__cause__, error.__context__) if it not in seen)
    return False
