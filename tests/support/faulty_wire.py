"""A WSGI application around another, on which requests go wrong as a test says."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

__all__ = ["FaultyWire", "Received"]

App = Callable[[dict[str, Any], Any], Iterable[bytes]]


class Received(NamedTuple):
    """A request that arrived, whatever became of it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def last(self) -> str:
        """The path's last word."""
        return self.path.rpartition("/")[2]


class _Fault(NamedTuple):
    word: str
    act: Callable[[], tuple[int, bytes] | None]
    late: bool


class FaultyWire:
    """Passes every request on, except as it was told to. ``requests``: all that arrived, in order.

    A request is named by the last word of its path (``steps``, ``complete``, ``batch``).
    ``delay``: seconds that each is on its way.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self.delay = 0.0
        self._guard = threading.Lock()
        self._faults: list[_Fault] = []
        self.requests: list[Received] = []

    def words(self) -> list[str]:
        return [request.last for request in self.requests]

    def count(self, word: str) -> int:
        return self.words().count(word)

    def of(self, word: str) -> list[Received]:
        return [request for request in self.requests if request.last == word]

    def lose_request(self, word: str, times: int = 1) -> None:
        """A gateway answers the next ones without having passed them on."""
        self._order(word, lambda: (502, b"bad gateway"), times, late=False)

    def lose_reply(self, word: str, times: int = 1) -> None:
        """The next ones are done, and a gateway answers in the application's place."""
        self._order(word, lambda: (504, b"gateway timeout"), times, late=True)

    def refuse(
        self,
        word: str,
        status: int,
        body: bytes,
        times: int = 1,
        *,
        then: Callable[[], object] = lambda: None,
    ) -> None:
        """The next ones are answered so, and not passed on; ``then`` is called as they arrive."""

        def refusing() -> tuple[int, bytes]:
            then()
            return status, body

        self._order(word, refusing, times, late=False)

    def before(self, word: str, act: Callable[[], object]) -> None:
        """``act`` happens before the next one is passed on."""

        def acting() -> None:
            act()

        self._order(word, acting, 1, late=False)

    def after(self, word: str, act: Callable[[], object]) -> None:
        """``act`` happens after the next one was done, before its answer is given."""

        def acting() -> None:
            act()

        self._order(word, acting, 1, late=True)

    def _order(
        self,
        word: str,
        act: Callable[[], tuple[int, bytes] | None],
        times: int,
        *,
        late: bool,
    ) -> None:
        with self._guard:
            self._faults += [_Fault(word, act, late)] * times

    def _take(self, word: str) -> _Fault | None:
        with self._guard:
            for fault in self._faults:
                if fault.word == word:
                    self._faults.remove(fault)
                    return fault
        return None

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length) if length else b""
        environ["wsgi.input"] = io.BytesIO(body)
        headers = {
            key[5:].replace("_", "-").lower(): value
            for key, value in environ.items()
            if key.startswith("HTTP_")
        }
        received = Received(environ["REQUEST_METHOD"], environ["PATH_INFO"], headers, body)
        with self._guard:
            self.requests.append(received)
        if self.delay:
            time.sleep(self.delay)
        fault = self._take(received.last)
        if fault is not None and not fault.late and (answer := fault.act()) is not None:
            return _answered(start, *answer)
        if fault is None or not fault.late:
            return self._app(environ, start)
        started: list[Any] = []
        content = b"".join(self._app(environ, lambda *head: started.append(head)))
        if (answer := fault.act()) is not None:
            return _answered(start, *answer)
        start(*started[0])
        return [content]


def _answered(start: Any, status: int, body: bytes) -> Iterable[bytes]:
    start(f"{status} {'-'}", [("Content-Length", str(len(body)))])
    return [body]
