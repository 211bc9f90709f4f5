"""A model provider on loopback that answers as a test says, and counts what it is asked.

It imitates OpenAI (chat completions, responses, embeddings), Anthropic (messages), Google (Gemini)
and Amazon (Bedrock), plain and streamed, as ``provider_bodies`` has it. An answer is a function of
the request; a script of answers is used up one by one, its last for ever.
"""

from __future__ import annotations

import gzip
import json
import socket
import struct
import threading
import zlib
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

from .provider_bodies import (
    AMAZON_STREAM,
    anthropic_message,
    anthropic_stream,
    chat_completion,
    chat_stream,
    converse_answer,
    converse_stream,
    embeddings,
    gemini_answer,
    gemini_stream,
    response_object,
    response_stream,
)

__all__ = [
    "Answer",
    "Provider",
    "Request",
    "anthropic_message",
    "anthropic_stream",
    "broken_off",
    "chat_completion",
    "chat_stream",
    "converse_stream",
    "error",
    "held",
    "plain",
    "reset",
    "response_object",
    "stream",
    "usual",
]


class Request(NamedTuple):
    """What was asked. ``headers``: by lower-case name."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Handler(BaseHTTPRequestHandler):
    """One connection; answers get it to write on."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.provider.connected()

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length", "0"))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, self.rfile.read(size))
        self.server.provider.take(request)(request, self)

    do_GET = do_POST

    def log_message(self, format: str, *args: Any) -> None:
        """Tests print what they want to be seen."""

    def start(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


Answer = Callable[[Request, Handler], None]


def plain(body: Any, status: int = 200, *, gzipped: bool = False, **headers: str) -> Answer:
    """A whole answer; what is not bytes is sent as JSON. ``_`` in a header's name is ``-``."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    def answer(request: Request, handler: Handler) -> None:
        data = gzip.compress(content, mtime=0) if gzipped else content
        sent = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        sent |= {"Content-Encoding": "gzip"} if gzipped else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        handler.start(status, sent)
        handler.wfile.write(data)

    return answer


def error(status: int, message: str = "scripted", **headers: str) -> Answer:
    """An error as OpenAI and Anthropic send it; their SDKs retry at once unless told otherwise."""
    if "Retry_After" not in headers:
        headers = {"Retry_After_Ms": "1", **headers}
    body = {"type": "error", "error": {"type": "scripted", "message": message, "code": "scripted"}}
    return plain(body, status, **headers)


def stream(
    chunks: Iterable[bytes],
    *,
    content_type: str = "text/event-stream",
    gzipped: bool = False,
    before: Callable[[int], object] = lambda number: None,
) -> Answer:
    """A streamed answer; ``before(n)`` is called before the chunk with that number is sent."""
    parts = list(chunks)

    def answer(request: Request, handler: Handler) -> None:
        headers = {"Content-Type": content_type, "Transfer-Encoding": "chunked"}
        handler.start(200, headers | ({"Content-Encoding": "gzip"} if gzipped else {}))
        packed = _gzip_parts(parts) if gzipped else parts
        for number, part in enumerate(packed):
            before(number)
            handler.chunk(part)
        handler.chunk(b"")

    return answer


def _gzip_parts(parts: list[bytes]) -> Iterable[bytes]:
    """One gzip member for each chunk would be read by few; this is one stream, flushed often."""
    packer = zlib.compressobj(wbits=31)
    for part in parts:
        yield packer.compress(part) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield packer.flush()


def broken_off(chunks: Iterable[bytes]) -> Answer:
    """A stream whose connection is lost after these chunks."""
    parts = list(chunks)

    def answer(request: Request, handler: Handler) -> None:
        handler.start(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
        for part in parts:
            handler.chunk(part)
        handler.close_connection = True
        handler.connection.shutdown(socket.SHUT_RDWR)

    return answer


def reset(request: Request, handler: Handler) -> None:
    """Read the request and reset the connection."""
    handler.close_connection = True
    linger = struct.pack("ii", 1, 0)
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    handler.connection.shutdown(socket.SHUT_RDWR)


def held(release: threading.Event, then: Answer, seconds: float = 60.0) -> Answer:
    """Answer when ``release`` is set."""

    def answer(request: Request, handler: Handler) -> None:
        release.wait(seconds)
        then(request, handler)

    return answer


# -- the server


_SAID: dict[str, tuple[Callable[[], Any], Callable[[], list[bytes]]]] = {
    "/messages": (anthropic_message, anthropic_stream),
    "/responses": (response_object, response_stream),
    "/chat/completions": (chat_completion, chat_stream),
    "/embeddings": (embeddings, list),
    ":generateContent": (gemini_answer, list),
    ":streamGenerateContent": (dict, gemini_stream),
    "/converse": (converse_answer, list),
    "/converse-stream": (dict, converse_stream),
    "/invoke": (anthropic_message, list),
}
"""How a path ends -> what its provider says, and says streamed."""


def usual(request: Request, handler: Handler) -> None:
    """What the path's provider says, streamed when asked for."""
    path = request.path.partition("?")[0]
    wanted = b'"stream":true' in request.body.replace(b" ", b"")
    streams = wanted or path.endswith((":streamGenerateContent", "/converse-stream"))
    nothing: Any = (lambda: {"object": "list", "data": []}, list)
    said, streamed = next((said for end, said in _SAID.items() if path.endswith(end)), nothing)
    kind = AMAZON_STREAM if path.endswith("/converse-stream") else "text/event-stream"
    answer = stream(streamed(), content_type=kind) if streams else plain(said())
    answer(request, handler)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are what tests are about."""


class Provider:
    """Serves ``url`` while it is open."""

    def __init__(self) -> None:
        self._server = _Server(self)
        self._guard = threading.Lock()
        self._script: list[Answer] = [usual]
        self.requests: list[Request] = []
        self.connections = 0
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.closing = ExitStack()
        """Its clients, closed before it is."""

    def answer(self, *answers: Answer) -> None:
        """Answer the next requests with these, and the last of them for ever."""
        with self._guard:
            self._script = list(answers)

    def answer_as_usual(self) -> None:
        """Answer as the provider would."""
        self.answer(usual)

    def connected(self) -> None:
        """Count a connection."""
        with self._guard:
            self.connections += 1

    def take(self, request: Request) -> Answer:
        """Count a request; how it is answered."""
        with self._guard:
            self.requests.append(request)
            return self._script.pop(0) if len(self._script) > 1 else self._script[0]

    def __enter__(self) -> Self:
        loop = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="provider", daemon=True
        )
        loop.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.closing.close()
        self._server.shutdown()
        self._server.server_close()
