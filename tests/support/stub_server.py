"""A server of plain sockets that answers as a test says: for what no well-kept server ever does."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from rebuno_sync.closing import Closing

__all__ = ["Ask", "StubServer", "close_after", "cut", "hang_up", "reply", "reset"]


class Ask(NamedTuple):
    """A request as its bytes said it. ``connection`` counts the connections from 0."""

    connection: int
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


Act = Callable[[Ask, socket.socket], bool]
"""Answers on the connection; whether it stays open."""


def _bytes(status: int, body: bytes, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} -", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def reply(status: int = 200, body: Any = b"", **headers: str) -> Act:
    """A whole answer; what is not bytes is sent as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    def act(ask: Ask, sock: socket.socket) -> bool:
        sock.sendall(_bytes(status, content, headers))
        return headers.get("Connection") != "close"

    return act


def close_after(act: Act) -> Act:
    """Answers, and then closes the connection without having said so."""

    def closing(ask: Ask, sock: socket.socket) -> bool:
        act(ask, sock)
        return False

    return closing


def hang_up(ask: Ask, sock: socket.socket) -> bool:
    """Reads the request and closes the connection."""
    return False


def reset(ask: Ask, sock: socket.socket) -> bool:
    """Reads the request and resets the connection."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


def cut(length: int) -> Act:
    """Sends that many bytes of an answer and closes the connection."""

    def act(ask: Ask, sock: socket.socket) -> bool:
        sock.sendall(_bytes(200, b'{"decision": "proceed", "step_id": "s"}', {})[:length])
        return False

    return act


class StubServer(Closing):
    """Answers each request with the next of ``acts``, and when there are no more with the last."""

    def __init__(self, *acts: Act) -> None:
        self._acts = list(acts)
        self._guard = threading.Lock()
        self.asked: list[Ask] = []
        self._open: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, name="stub-server", daemon=True).start()

    def then(self, *acts: Act) -> None:
        """Answer with these from now on."""
        with self._guard:
            self._acts = list(acts)

    @property
    def connections(self) -> int:
        """How many have asked something."""
        return len({ask.connection for ask in self.asked})

    def _accept(self) -> None:
        number = 0
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            with self._guard:
                self._open.append(sock)
            threading.Thread(
                target=self._serve, args=(sock, number), name="stub-server", daemon=True
            ).start()
            number += 1

    def _serve(self, sock: socket.socket, number: int) -> None:
        with sock, sock.makefile("rb") as stream:
            stays = True
            while stays:
                try:
                    ask = _read(stream, number)
                    if ask is None:
                        return
                    with self._guard:
                        self.asked.append(ask)
                        act = self._acts[0] if len(self._acts) == 1 else self._acts.pop(0)
                    stays = act(ask, sock)
                except (OSError, ValueError):
                    return

    def close(self) -> None:
        self._listening.close()
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def _read(stream: Any, number: int) -> Ask | None:
    line = stream.readline().decode("latin-1").split()
    if len(line) < 2:
        return None
    headers = {}
    while (header := stream.readline().decode("latin-1").strip()) != "":
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    body = stream.read(int(headers.get("content-length", 0)))
    return Ask(number, line[0], line[1], headers, body)
