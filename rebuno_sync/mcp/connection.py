"""One session with an MCP server, kept by an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Generic, TypeVar

from ..workers import beside

__all__ = ["Connection", "ConnectionLost"]

S = TypeVar("S")
T = TypeVar("T")


class ConnectionLost(ConnectionError):
    """The connection with an MCP server broke, or could not be made.

    ``sent``: whether the request may have arrived.
    """

    def __init__(self, message: str, sent: bool = False) -> None:
        super().__init__(message)
        self.sent = sent

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.args[0], self.sent), self.__dict__


class Connection(Generic[S]):
    """Opens a session when it is first asked for, again after it broke, and shares it.

    ``open_session``: an asynchronous context manager of a session; it is entered and left in one
    task, as anyio demands. ``is_broken``: whether an exception of a request says that the session
    is of no more use.
    """

    def __init__(
        self,
        open_session: Callable[[], AbstractAsyncContextManager[S]],
        is_broken: Callable[[Exception], bool],
        seconds: float,
    ) -> None:
        self._open_session = open_session
        self._is_broken = is_broken
        self._seconds = seconds
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = threading.Event()
        self._closed = False
        self._session: _Session[S] | None = None

    def ask(
        self, request: Callable[[S], Awaitable[T]], seconds: float | None
    ) -> concurrent.futures.Future[T]:
        """Make a request in the loop's thread, and give it that long once the session is open.

        The future raises ``ConnectionLost`` when the session broke or could not be opened, and
        ``TimeoutError``; cancelling it gives the request up.
        """
        with self._guard:
            if self._closed:
                raise RuntimeError("the MCP client is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                loop = self._loop
                beside("rebuno-mcp", lambda: self._run(loop))
            return asyncio.run_coroutine_threadsafe(self._ask(request, seconds), self._loop)

    def close(self, seconds: float) -> None:
        """End the session and the thread; requests under way raise ``ConnectionLost``."""
        with self._guard:
            if self._loop is None:
                self._ended.set()
            elif not self._closed:
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._closed = True
        self._ended.wait(seconds)

    # -- in the loop's thread

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
            loop.run_until_complete(self._wind_up())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()
            self._ended.set()

    async def _wind_up(self) -> None:
        if self._session is not None:
            self._session.leave()
            await asyncio.wait({self._session.task})
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _ask(self, request: Callable[[S], Awaitable[T]], seconds: float | None) -> T:
        if self._closed:
            raise ConnectionLost("the client was closed")
        if self._session is None or self._session.over:
            self._session = _Session(self._open_session, self._seconds)
        session = self._session
        opened = await session.opened()
        asked = asyncio.ensure_future(_awaited(request(opened)))
        asked.add_done_callback(_look_at)
        try:
            both = {asked, session.task}
            ended, _ = await asyncio.wait(
                both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if not ended:
                raise _TooLate
            if asked.done() and not asked.cancelled():
                return asked.result()
        except _TooLate:
            raise TimeoutError from None
        except ConnectionLost:
            session.leave()
            raise
        except Exception as error:
            if not session.over and not self._is_broken(error):
                raise
            session.leave()
            raise ConnectionLost(f"the connection broke: {_said(error)}", sent=True) from error
        finally:
            asked.cancel()
        raise ConnectionLost("the connection broke", sent=True)


class _TooLate(Exception): ...


class _Session(Generic[S]):
    """A session from its opening to its end, in one task."""

    def __init__(
        self, open_session: Callable[[], AbstractAsyncContextManager[S]], seconds: float
    ) -> None:
        self._ready: asyncio.Future[S] = asyncio.get_running_loop().create_future()
        self._left = asyncio.Event()
        self.task = asyncio.ensure_future(self._live(open_session, seconds))

    @property
    def over(self) -> bool:
        return self._left.is_set() or self.task.done()

    def leave(self) -> None:
        """End it; an opening that is under way is given up."""
        self._left.set()
        if not self._ready.done():
            self.task.cancel()

    async def opened(self) -> S:
        """The session, once it is open."""
        return await asyncio.shield(self._ready)

    async def _live(
        self, open_session: Callable[[], AbstractAsyncContextManager[S]], seconds: float
    ) -> None:
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(seconds):
                    session = await stack.enter_async_context(open_session())
                self._ready.set_result(session)
                await self._left.wait()
        except (Exception, asyncio.CancelledError) as error:
            # A transport that breaks cancels the task that it was opened in.
            self._left.set()
            if self._ready.done():
                return
            lost = ConnectionLost(f"it could not be reached: {_said(error)}")
            lost.__cause__ = error
            self._ready.set_exception(lost)
            self._ready.exception()  # Looked at here: whoever waits for it may have gone.


def _said(error: BaseException) -> str:
    """What an exception says; of a group, its first leaf."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


def _look_at(asked: asyncio.Future[T]) -> None:
    """What became of a request that was given up is no news to asyncio's log."""
    if not asked.cancelled():
        asked.exception()


async def _awaited(request: Awaitable[T]) -> T:
    return await request
