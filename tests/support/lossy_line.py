"""A line between two processes that speak HTTP, on which replies are lost as a test says."""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from rebuno_sync.closing import Closing

from .waiting import wait_until

__all__ = ["LossyLine", "Sent"]


class Sent(NamedTuple):
    """A request that came in on the line. Header names are lower-case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def last(self) -> str:
        """The last word of the target's path."""
        return self.target.partition("?")[0].rpartition("/")[2]


Answer = tuple[int, bytes]


class LossyLine(Closing):
    """Listens on a free port and passes every request on to ``to`` (a host and a port).

    ``loses``: whether the reply to a request is lost, once it is there: the connection is reset in
    its place. ``answers``: what is answered to a request that is not passed on at all, or ``None``.
    ``without``: headers that are taken out of every request. ``sent`` keeps all that came in.
    """

    def __init__(
        self,
        to: tuple[str, int],
        *,
        loses: Callable[[Sent], bool] = lambda _: False,
        answers: Callable[[Sent], Answer | None] = lambda _: None,
        without: Iterable[str] = (),
    ) -> None:
        self.to = to
        self.loses = loses
        self.answers = answers
        self.without = frozenset(without)
        self.sent: list[Sent] = []
        self.lost = 0
        self._guard = threading.Lock()
        self._closed = False
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, name="lossy-line", daemon=True)
        self._thread.start()

    def wait_for(self, wanted: Callable[[Sent], bool], what: str, seconds: float = 20.0) -> Sent:
        """The first request that is ``wanted``, once it has come in."""
        return wait_until(lambda: [it for it in list(self.sent) if wanted(it)], what, seconds)[0]

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            with self._guard:
                if self._closed:
                    sock.close()
                    return
                self._open.add(sock)
            threading.Thread(
                target=self._serve, args=(sock,), name="lossy-line", daemon=True
            ).start()

    def _serve(self, sock: socket.socket) -> None:
        onward = http.client.HTTPConnection(*self.to, timeout=60)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with sock, sock.makefile("rb") as stream:
                while (sent := _read(stream)) is not None:
                    if (onward.host, onward.port) != self.to:
                        onward.close()
                        onward = http.client.HTTPConnection(*self.to, timeout=60)
                    if not self._pass_on(sent, sock, onward):
                        return
        except (OSError, http.client.HTTPException):
            return  # Either side has gone, and the other one notices.
        finally:
            onward.close()
            with self._guard:
                self._open.discard(sock)

    def _pass_on(self, sent: Sent, sock: socket.socket, onward: http.client.HTTPConnection) -> bool:
        """Whether the connection stays."""
        with self._guard:
            self.sent.append(sent)
        answer = self.answers(sent)
        if answer is None:
            headers = {k: v for k, v in sent.headers.items() if k not in self.without}
            onward.request(sent.method, sent.target, sent.body, headers)
            reply = onward.getresponse()
            answer = reply.status, reply.read()
        if self.loses(sent):
            with self._guard:
                self.lost += 1
            # A reset, and not a close that the other side could take for an end.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        status, body = answer
        head = f"HTTP/1.1 {status} -\r\nContent-Type: application/json\r\n"
        sock.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return True

    def close(self) -> None:
        with self._guard:
            self._closed = True
            still_open = list(self._open)
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for sock in still_open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()


def _read(stream: Any) -> Sent | None:
    line = stream.readline().decode("latin-1").split()
    if len(line) < 2:
        return None
    headers = {}
    while (header := stream.readline().decode("latin-1").strip()) != "":
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    body = stream.read(int(headers.get("content-length", 0)))
    return Sent(line[0], line[1], headers, body)
