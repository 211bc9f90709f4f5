"""A model provider on loopback that answers as a test says, and counts what it is asked.

It imitates OpenAI (chat completions, responses) and Anthropic (messages), plain and streamed. An
answer is a function of the request; a script of answers is used up one by one, its last for ever.
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


# -- what the providers say


def chat_completion(content: str = "Hello.") -> dict[str, Any]:
    """OpenAI's chat completion."""
    message = {"role": "assistant", "content": content, "refusal": None}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1700000000,
        "model": "gpt-test",
        "choices": [choice],
        "usage": usage,
    }


def chat_stream(words: Iterable[str] = ("Hel", "lo", ".")) -> list[bytes]:
    """OpenAI's chat completion, streamed; usage in the last chunk."""

    def data(choices: list[Any], **more: Any) -> bytes:
        chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1700000000}
        return _data(chunk | {"model": "gpt-test", "choices": choices} | more)

    parts = [
        data([{"index": 0, "delta": {"content": word}, "finish_reason": None}]) for word in words
    ]
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    parts.append(data([{"index": 0, "delta": {}, "finish_reason": "stop"}]))
    parts.append(data([], usage=usage))
    return [*parts, b"data: [DONE]\n\n"]


def response_object(content: str = "Hello.") -> dict[str, Any]:
    """OpenAI's answer of the Responses API."""
    text = {"type": "output_text", "text": content, "annotations": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1700000000,
        "status": "completed",
        "model": "gpt-test",
        "output": [message | {"content": [text]}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 11,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 18,
        },
    }


def anthropic_message(content: str = "Hello.") -> dict[str, Any]:
    """Anthropic's message."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": [{"type": "text", "text": content}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 11, "output_tokens": 7},
    }


def anthropic_stream(words: Iterable[str] = ("Hel", "lo", ".")) -> list[bytes]:
    """Anthropic's message, streamed."""
    start = anthropic_message() | {"content": [], "stop_reason": None}
    start["usage"] = {"input_tokens": 11, "output_tokens": 1}
    block = {"type": "text", "text": ""}
    deltas = [
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": word},
        }
        for word in words
    ]
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *deltas,
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    ]
    return [f"event: {event['type']}\n".encode() + _data(event) for event in events]


def converse_stream(words: Iterable[str] = ("Hel", "lo", ".")) -> list[bytes]:
    """Amazon's answer to ConverseStream, in its binary frames."""
    texts = [{"contentBlockIndex": 0, "delta": {"text": word}} for word in words]
    usage = {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18}
    return [
        _amazon_frame("messageStart", {"role": "assistant"}),
        *(_amazon_frame("contentBlockDelta", text) for text in texts),
        _amazon_frame("messageStop", {"stopReason": "end_turn"}),
        _amazon_frame("metadata", {"usage": usage, "metrics": {"latencyMs": 1}}),
    ]


def _amazon_frame(kind: str, payload: dict[str, Any]) -> bytes:
    names = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        bytes([len(name)])
        + name.encode()
        + b"\x07"
        + struct.pack(">H", len(value))
        + value.encode()
        for name, value in names.items()
    )
    body = json.dumps(payload).encode()
    start = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    frame = start + struct.pack(">I", zlib.crc32(start)) + headers + body
    return frame + struct.pack(">I", zlib.crc32(frame))


def _data(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


# -- the server


def _usual(request: Request, handler: Handler) -> None:
    """What the path's provider says, streamed when asked for."""
    streams = request.method == "POST" and b'"stream":true' in request.body.replace(b" ", b"")
    if request.path.endswith("/messages"):
        answer = stream(anthropic_stream()) if streams else plain(anthropic_message())
    elif request.path.endswith("/responses"):
        answer = plain(response_object())
    elif request.path.endswith("/chat/completions"):
        answer = stream(chat_stream()) if streams else plain(chat_completion())
    else:
        answer = plain({"object": "list", "data": []})
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
        self._script: list[Answer] = [_usual]
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
        self.answer(_usual)

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
