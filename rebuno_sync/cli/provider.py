"""A small model provider on loopback: OpenAI's chat completions, answered by extraction.

The same request always gets the same answer, so that two executions can be compared.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from .passages import best, sentences

__all__ = ["MODEL", "Provider"]

MODEL = "extractive"
_SENTENCES = 2
_LARGEST_REQUEST = 4 * 1024 * 1024
_HOLD_SECONDS = 60.0


class Provider:
    """Serves ``url`` while it is open, and counts what it was asked."""

    def __init__(self) -> None:
        self._server = _Server(self)
        self._guard = threading.Lock()
        self._requests = 0
        self._held = -1
        self._is_held = threading.Event()
        self._released = threading.Event()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    @property
    def requests(self) -> int:
        """How many questions have arrived."""
        with self._guard:
            return self._requests

    def hold(self, number: int) -> None:
        """Never answer that request, counted from 1."""
        self._held = number

    def await_held(self, seconds: float) -> bool:
        """Wait until the request to be held has arrived; whether it did."""
        return self._is_held.wait(seconds)

    def receive(self) -> bool:
        """Count a request; whether it shall be answered."""
        with self._guard:
            self._requests += 1
            number = self._requests
        if number == self._held:
            self._is_held.set()
            self._released.wait(_HOLD_SECONDS)
            return False
        return True

    def __enter__(self) -> Self:
        loop = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="demo-provider", daemon=True
        )
        loop.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed while it waited is what the demo is about."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        if self.path != "/v1/chat/completions":
            self._answer(404, {"error": {"message": f"no such path: {self.path}"}})
            return
        try:
            size = int(self.headers.get("Content-Length", "0"))
            if not 0 <= size <= _LARGEST_REQUEST:
                raise ValueError(f"a body of {size} bytes")
            request = json.loads(self.rfile.read(size))
            model, prompt = request["model"], request["messages"][-1]["content"]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            self._answer(400, {"error": {"message": f"not a chat completion: {error!r}"}})
            return
        if self.server.provider.receive():
            self._answer(200, _completion(str(model), _extract(str(prompt))))

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: Any) -> None:
        """The demo prints what it wants to be seen."""


def _extract(prompt: str) -> str:
    """The sentences that fit the question best; the first line of a prompt is its question."""
    question, _, text = prompt.partition("\n")
    return " ".join(best(sentences(text), question, _SENTENCES))


def _completion(model: str, content: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": content}
    return {
        "id": "chatcmpl-demo",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
