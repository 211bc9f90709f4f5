"""What recording adds to a model call, against the bare client: per call, and per streamed
megabyte.

    python benchmarks/model_call.py

The provider is on loopback and answers at once. A recorded call is two durable commits; what they
cost is shown by a tool that returns the same answer.
"""

from __future__ import annotations

import contextlib
import functools
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import requests
from ratios import Rival, arguments, compare, timed

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

MESSAGE = "word " * 6000
ANSWER = json.dumps({"choices": [{"message": {"content": "word " * 200}}]}).encode()
EVENT = b'data: {"choices": [{"index": 0, "delta": {"content": "some words of text"}}]}\n\n'
MEGABYTE = 1024 * 1024


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        size = int(self.path.partition("=")[2] or 0)
        kind = "text/event-stream" if size else "application/json"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size or len(ANSWER)))
        # Headers and body in one packet: a second would wait for the first's acknowledgement.
        self._headers_buffer.append(b"\r\n" + (b"" if size else ANSWER))
        self.flush_headers()
        if not size:
            return
        for _ in range(size // len(EVENT)):
            self.wfile.write(EVENT)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def provider() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def calls(post: Callable[[dict[str, Any]], object], count: int) -> None:
    for number in range(count):
        post({"model": "m", "number": number, "messages": [MESSAGE]})


def streams(client: Any, url: str, arrived: list[float]) -> None:
    """Reads a stream; when its last bytes have arrived, before it is recorded, goes to
    ``arrived``."""
    with client.stream("POST", url, json={"model": "m", "stream": True}) as answer:
        for _ in answer.iter_bytes():
            last = time.perf_counter()
    arrived.append(last)


@rebuno.tool
def as_large(number: int, message: str) -> str:
    return ANSWER.decode()


def main() -> None:
    options = arguments(__doc__ or "")
    count, megabytes, turns = (3, 1, 1) if options.quick else (100, 2, 5)
    size = megabytes * MEGABYTE // len(EVENT) * len(EVENT)
    with (
        tempfile.TemporaryDirectory(dir=".") as folder,
        Kernel(Path(folder) / "kernel.db") as kernel,
        provider() as url,
        requests.Session() as session,
        rebuno.http_client() as recording_session,
        httpx2.Client() as client,
        rebuno.httpx_client() as recording_client,
    ):

        def durably(work: Callable[[], object]) -> Callable[[], object]:
            return lambda: rebuno.run(work, agent="benchmark", kernel=kernel)

        def tools() -> None:
            for number in range(count):
                as_large(number, MESSAGE)

        compare(
            "a 30 KB model call",
            *(
                Rival(name, lambda work=work: timed(work, count))
                for name, work in {
                    "requests, bare": lambda: calls(lambda b: session.post(url, json=b), count),
                    "httpx2, bare": lambda: calls(lambda b: client.post(url, json=b), count),
                    "requests, recorded": durably(
                        lambda: calls(lambda b: recording_session.post(url, json=b), count)
                    ),
                    "httpx2, recorded": durably(
                        lambda: calls(lambda b: recording_client.post(url, json=b), count)
                    ),
                    "a tool of that size: what the kernel takes": durably(tools),
                }.items()
            ),
            turns=turns,
        )
        streamed = f"{url}?size={size}"
        arrived: list[float] = []
        bare = functools.partial(streams, client, streamed, arrived)
        recorded = durably(lambda: streams(recording_client, streamed, arrived))

        def until_the_last_byte(work: Callable[[], object]) -> float:
            started = time.perf_counter()
            work()
            return (arrived.pop() - started) / megabytes

        compare(
            "a streamed megabyte of small events",
            Rival("httpx2, bare", lambda: until_the_last_byte(bare)),
            Rival("httpx2, recorded: as it arrives", lambda: until_the_last_byte(recorded)),
            Rival("httpx2, recorded: with its outcome", lambda: timed(recorded, megabytes)),
            turns=turns,
        )


if __name__ == "__main__":
    main()
