"""A receiver of webhooks on the loopback interface, which answers as a test wants."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rebuno_sync.closing import Closing
from rebuno_sync.types import LeaseKey

from .waiting import wait_until

__all__ = ["Received", "Receiver"]


@dataclass(frozen=True)
class Received:
    """One webhook, as it came. Header names are lower-case."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def lease(self) -> LeaseKey:
        fields = self.fields
        return LeaseKey(
            fields["execution_id"], fields["dispatch_id"], fields.get("dispatch_attempt", 0)
        )


class Receiver(Closing):
    """Listens on a free port. ``answer`` gives each webhook's status; it may take its time."""

    def __init__(self, answer: Callable[[Received], int] = lambda _: 200, port: int = 0) -> None:
        self.answer = answer
        self.received: list[Received] = []
        self._ended = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status = receiver._take(Received(self.path, headers, body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None: ...

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                """Whoever sent it has gone."""

        self._server = Quiet(("127.0.0.1", port), Handler)
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/webhook"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    def _take(self, webhook: Received) -> int:
        self.received.append(webhook)
        return self.answer(webhook)

    def hang(self, webhook: Received) -> int:
        """As ``answer``: none before the receiver is closed."""
        self._ended.wait()
        return 500

    def wait_for(self, count: int, seconds: float = 20.0) -> list[Received]:
        """The webhooks, once there are that many."""
        wait_until(lambda: len(self.received) >= count, f"webhook number {count}", seconds)
        return list(self.received)

    def close(self) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
