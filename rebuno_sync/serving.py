"""Serving a WSGI application in this process, on waitress, until it is told to stop."""

from __future__ import annotations

import errno
import logging
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any

from .clock import SYSTEM
from .pushing import Pusher

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["Server", "Stop", "raise_file_limit", "stopped_by_signals"]

_log = logging.getLogger(__name__)

_LARGEST_PORT = 65535
_MOST_CONNECTIONS = 10_000
_OTHER_DESCRIPTORS = 400
"""What a process has open besides: its files, what it asks of others, and the streams that were
handed over."""
_STOPPING = (signal.SIGINT, signal.SIGTERM)
_LOOK_SECONDS = 0.05
_LARGEST_BODY = 64 * 2**20
"""Larger ones are not read at all; what is too large for an application, it says itself."""

_MISSING = (
    "serving needs waitress, which comes with an extra: pip install 'rebuno-sync[serve]'."
    " Or mount the WSGI application in a server of your own."
)


class Server:
    """Serves ``app`` from its construction, in a thread of its own, until ``close``.

    A response that is ``ports.Pushed`` is written by a thread that all of them share.

    ``port``: 0 takes a free one. Raises ``ImportError`` naming the extra when the server is not
    installed, and ``OSError`` naming the address when it cannot be had.
    """

    def __init__(self, app: WSGIApplication, host: str, port: int, *, threads: int = 8) -> None:
        try:
            from waitress import wasyncore
            from waitress.server import create_server
            from waitress.task import ThreadedTaskDispatcher
        except ImportError as error:
            raise ImportError(_MISSING) from error
        # A queue is what a server has when it is busy.
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)
        self._loop_once: Callable[..., None] = wasyncore.loop
        self._close_all: Callable[..., None] = wasyncore.close_all
        # Of a listening socket only: a server's own ``close`` ends what wakes the loop as well.
        self._close_one: Callable[..., None] = wasyncore.dispatcher.close
        self._map: dict[int, Any] = {}
        self._pusher = Pusher()
        if not 0 <= port <= _LARGEST_PORT:  # The system would take another one, silently.
            raise _cannot_listen(host, port, ValueError(f"ports are 0 to {_LARGEST_PORT}"))
        threads_: Any = ThreadedTaskDispatcher()
        threads_.set_thread_count(threads)
        try:
            made: Any = create_server(
                _HandsOver(app, self._pusher),
                map=self._map,
                _dispatcher=threads_,
                host=host,
                port=port,
                threads=threads,
                # A server that is at its limit accepts nobody until an idle one is dropped.
                connection_limit=_most_connections(),
                max_request_body_size=_LARGEST_BODY,
                ident=None,
                clear_untrusted_proxy_headers=True,
            )
        except (OSError, ValueError, OverflowError) as error:
            threads_.shutdown(timeout=1)
            self._close_all(self._map)
            self._pusher.close()
            raise _cannot_listen(host, port, error) from None
        self._server = made
        server = self._server
        listening = getattr(server, "effective_listen", None) or [
            (server.effective_host, server.effective_port)
        ]
        self.host, self.port = str(listening[0][0]), int(listening[0][1])
        self._grace = 0.0
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="rebuno-server", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def _serve(self) -> None:
        while not self._closing:
            self._loop_once(timeout=30, use_poll=True, map=self._map, count=1)
        self._drain()
        self._server.task_dispatcher.shutdown(timeout=1)
        self._close_all(self._map)

    def _drain(self) -> None:
        """Take no more connections, and answer what is being asked."""
        for each in list(self._map.values()):
            if each.accepting:
                self._close_one(each)
        until = SYSTEM.monotonic() + self._grace
        while any(map(_is_busy, list(self._map.values()))) and SYSTEM.monotonic() < until:
            self._loop_once(timeout=_LOOK_SECONDS, use_poll=True, map=self._map, count=1)

    def close(self, grace: float = 1.0) -> None:
        """Stop serving. What is being asked has ``grace`` seconds to be answered, and is cut off
        then."""
        self._grace = grace
        self._closing = True
        for waiter in list(self._map.values()):
            if hasattr(waiter, "pull_trigger"):
                with suppress(OSError):  # Its thread has seen the flag and closed it already.
                    waiter.pull_trigger()
                break
        self._pusher.close()
        self._thread.join()


def _is_busy(waiter: Any) -> bool:
    """Whether a connection of waitress has a request under way, or an answer on its way."""
    return bool(getattr(waiter, "requests", None) or getattr(waiter, "total_outbufs_len", 0))


class _HandsOver:
    """``app``, whose endless responses leave waitress with their connections."""

    def __init__(self, app: WSGIApplication, pusher: Pusher) -> None:
        self._app = app
        self._pusher = pusher

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        begun: list[Any] = []

        def remember(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            begun[:] = status, headers
            return start(status, headers, exc_info)

        body: Any = self._app(environ, remember)
        channel = getattr(environ.get("waitress.client_disconnected"), "__self__", None)
        if channel is None or not hasattr(body, "on_more"):
            answer: Iterable[bytes] = body
            return answer
        from waitress.channel import ClientDisconnected

        chunked = environ["SERVER_PROTOCOL"] == "HTTP/1.1"
        head = _head(*begun, chunked=chunked)
        self._pusher.adopt(channel.socket.dup(), head, body, chunked=chunked)
        # To waitress the client is gone: it closes its own descriptor of the connection.
        raise ClientDisconnected


def _head(status: str, headers: list[tuple[str, str]], *, chunked: bool) -> bytes:
    how = ("Transfer-Encoding", "chunked") if chunked else ("Connection", "close")
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in [*headers, how])]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def raise_file_limit() -> None:
    """Let this process have as many open files as the system allows it: connections are some."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # Some systems allow less than they say.
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _most_connections() -> int:
    """As many as the system lets this process have: each agent keeps some dozens, idle."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return max(min(_MOST_CONNECTIONS, most - _OTHER_DESCRIPTORS), most // 2)


def _cannot_listen(host: str, port: int, error: Exception) -> OSError:
    number = getattr(error, "errno", None) or errno.EADDRNOTAVAIL
    cause = getattr(error, "strerror", None) or error
    return OSError(
        number,
        f"cannot listen on {host}:{port}: {cause}. If another program has the port, stop it or"
        " choose another one (0 takes a free one)",
    )


class Stop:
    """Is waited for until it is set, by a signal handler too: unlike an ``Event``, which a handler
    may find locked by the very thread that it interrupts."""

    def __init__(self) -> None:
        self._told: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        self._told.put(None)

    def wait(self) -> None:
        self._told.get()
        self._told.put(None)


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Have ``stop`` (``Stop.set``, say) called on the first SIGINT or SIGTERM; the second ends the
    process at once.

    Does nothing outside the main thread: only there Python handles signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        for each in _STOPPING:
            signal.signal(each, signal.SIG_DFL)
        stop()

    before = {number: signal.signal(number, handle) for number in _STOPPING}
    _handlers.append(handle)
    try:
        yield
    finally:
        _handlers.remove(handle)
        for number, handler in before.items():
            signal.signal(number, handler)


_handlers: list[Callable[[int, FrameType | None], None]] = []
"""Those that are set now. A forked child serves nothing, and is ended by these signals."""
_forking = threading.local()


def _hold_signals() -> None:
    """A child forgets what comes before it has begun: it is to come later."""
    if _handlers:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)


def _let_signals_through() -> None:
    mask = _forking.__dict__.pop("mask", None)
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _end_by_signals() -> None:
    for number in _STOPPING:
        if signal.getsignal(number) in _handlers:
            signal.signal(number, signal.SIG_DFL)
    _let_signals_through()


os.register_at_fork(
    before=_hold_signals, after_in_parent=_let_signals_through, after_in_child=_end_by_signals
)
