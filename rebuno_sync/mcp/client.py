"""``MCPClient``: a blocking client of one MCP server."""

from __future__ import annotations

import concurrent.futures
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakSet

from ..clock import SYSTEM
from ..closing import Closing
from ..context import ancestors
from ..types import Idempotency
from .breakage import checked, is_broken, may_come, was_refused
from .connection import Connection, ConnectionLost
from .wrapping import wrap_mcp_tools

if TYPE_CHECKING:
    import mcp

__all__ = ["MCPClient"]

T = TypeVar("T")

_LOOK_SECONDS = 0.2
"""How often a waiting thread looks whether its execution is over."""
_CLOSE_SECONDS = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_REFUSED_SECONDS = 10.0
"""For which a server that was reached before is waited for while it refuses connections: as long
as it may take to start again. Later calls do not wait for it."""


class MCPClient(Closing):
    """Calls the tools of an MCP server, from any number of threads.

    ``server``: the URL of a server that speaks streamable HTTP, or the command of one that speaks
    over its standard streams, a list of the program and its arguments. ``headers``: sent to a URL
    with every request. ``env``, ``cwd``: of the command; its environment has the variables in
    ``env`` besides ``PATH``, ``HOME`` and the like. ``timeout``: seconds to wait for an answer
    once the server is reached, ``None`` without a limit. ``connect_timeout``: seconds in which the
    server must be reached, before the first request and after the connection broke. A server that
    refuses connections is waited for at most ten seconds, and not again before it is reached.

    Nothing starts before the first request. After a fork the child connects anew. Close it with a
    ``with`` block, with ``close()``, or with its agent: ``Agent(..., closes=[client])``. Raises
    ``ImportError`` when the extra ``mcp`` is not installed, ``TypeError`` or ``ValueError`` for
    arguments that do not fit.
    """

    def __init__(
        self,
        server: str | Sequence[str],
        *,
        headers: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        timeout: float | None = 300.0,
        connect_timeout: float = 30.0,
    ) -> None:
        _check_installed()
        self._is_url = isinstance(server, str)
        if isinstance(server, str) and not server.startswith(("http://", "https://")):
            raise ValueError(
                f"server must be a URL or a command as a list, not {server!r}; for a command write"
                " MCPClient(['python', 'server.py'])"
            )
        if not server:
            raise ValueError("server must not be empty: give a URL, or a command as a list")
        if (env or cwd) if self._is_url else headers:
            raise TypeError("headers go with a URL; env and cwd go with a command")
        self._server = server if isinstance(server, str) else [*map(str, server)]
        self._name = _name_of(self._server)
        self._headers = dict(headers or {})
        self._env = dict(env or {})
        self._cwd = cwd
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._was_reached = False
        self._forget_connection()
        _clients.add(self)

    def tools(
        self,
        *,
        prefix: str = "",
        idempotency: str = Idempotency.SAFE_TO_RETRY,
        resources: Sequence[str] = (),
    ) -> list[Callable[..., Any]]:
        """The server's tools as effects (see `wrap_mcp_tool`); it asks the server, so call it once,
        before executions start.

        A ``safe_to_retry`` call is sent once more when the connection breaks before its answer has
        come; an ``at_most_once`` call never is, and its step fails.
        """
        repeat = idempotency == Idempotency.SAFE_TO_RETRY

        def call(name: str, arguments: dict[str, Any]) -> mcp.types.CallToolResult:
            return self.call_tool(name, arguments, repeat=repeat)

        return wrap_mcp_tools(
            self.list_tools(), call, prefix=prefix, idempotency=idempotency, resources=resources
        )

    def list_tools(self) -> list[mcp.Tool]:
        """The tools that the server has, those of all its pages."""

        async def pages(session: mcp.Client) -> list[mcp.Tool]:
            found: list[mcp.Tool] = []
            cursor: str | None = None
            while True:
                page = await session.list_tools(cursor=cursor)
                found += page.tools
                cursor = page.next_cursor
                if not cursor:
                    return found

        return self._ask("listing the tools", pages, repeat=True)

    def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, *, repeat: bool = False
    ) -> mcp.types.CallToolResult:
        """Call a tool and wait for its result, which may be an error of its own (``is_error``).

        No step is recorded: `tools` gives effects. ``repeat``: send it once more when the
        connection breaks before the answer has come. The wait ends when the attempt that it is
        part of does, by the signal of that. Raises ``ConnectionError`` when the server cannot be
        reached or the connection broke, ``TimeoutError`` after ``timeout`` seconds, and
        ``mcp.MCPError`` when the server refuses the request.
        """
        return self._ask(
            f"calling {name!r}", lambda session: session.call_tool(name, arguments), repeat=repeat
        )

    def close(self) -> None:
        """End the session, and with it a server that this client started. Idempotent."""
        self._connection.close(_CLOSE_SECONDS)

    # -- requests

    def _ask(self, what: str, request: Callable[[mcp.Client], Awaitable[T]], *, repeat: bool) -> T:
        """Ask until the server is reached; once more after a request that may have arrived."""
        started = SYSTEM.monotonic()
        pause = _FIRST_PAUSE
        while True:
            try:
                return self._await(what, self._connection.ask(checked(request), self._timeout))
            except ConnectionLost as lost:
                message = f"{what} at the MCP server {self._name}: {lost}"
                if lost.sent and not repeat:
                    raise ConnectionLost(message, sent=True) from lost
                if lost.sent:
                    repeat = False
                    started = SYSTEM.monotonic()
                elif SYSTEM.monotonic() + pause > started + self._patience(lost):
                    self._was_reached = False
                    raise ConnectionLost(message) from lost
            self._pause(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _patience(self, lost: ConnectionLost) -> float:
        """Seconds for which a server is tried that could not be reached."""
        if not (self._is_url and may_come(lost)):
            return 0.0
        if was_refused(lost):
            return min(self._connect_timeout, _REFUSED_SECONDS) if self._was_reached else 0.0
        return self._connect_timeout

    def _await(self, what: str, answer: concurrent.futures.Future[T]) -> T:
        around = ancestors()
        try:
            while not concurrent.futures.wait([answer], _LOOK_SECONDS).done:
                if around:
                    around[0].check()
            return answer.result()
        except concurrent.futures.CancelledError:
            raise ConnectionLost("the client was closed", sent=True) from None
        except TimeoutError as error:
            server = f"{what} at the MCP server {self._name}"
            raise TimeoutError(f"{server}: no answer in {self._timeout} s") from error
        finally:
            answer.cancel()

    def _pause(self, seconds: float) -> None:
        around = ancestors()
        if around:
            around[0].wait(seconds)
        else:
            threading.Event().wait(seconds)

    def _forget_connection(self) -> None:
        """Begin anew, touching nothing of what was: also after a fork."""
        self._connection = Connection(self._open, is_broken, self._connect_timeout)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[mcp.Client]:
        import httpx2
        import mcp
        from mcp.client.streamable_http import streamable_http_client

        if isinstance(self._server, str):
            timeout = httpx2.Timeout(self._connect_timeout, read=None)
            async with (
                httpx2.AsyncClient(headers=self._headers, timeout=timeout) as http,
                mcp.Client(streamable_http_client(self._server, http_client=http)) as session,
            ):
                self._was_reached = True
                yield session
            return
        program, *arguments = self._server
        command = mcp.StdioServerParameters(
            command=program, args=arguments, env=self._env, cwd=self._cwd
        )
        async with mcp.Client(command) as session:
            yield session


def _name_of(server: str | list[str]) -> str:
    """What errors call it: without what may be secret, credentials and arguments."""
    if not isinstance(server, str):
        return server[0]
    parts = urlsplit(server)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _check_installed() -> None:
    try:
        import mcp  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "MCPClient needs the package mcp; install it: pip install 'rebuno-sync[mcp]'"
        ) from error


_clients: WeakSet[MCPClient] = WeakSet()
_inherited: list[object] = []
"""Connections of the parent's: kept, since their end would close what is not this process's."""


def _forget_inherited() -> None:
    for client in list(_clients):
        _inherited.append(client._connection)
        client._forget_connection()


os.register_at_fork(after_in_child=_forget_inherited)
