"""Raw requests to a kernel's WSGI app, signed as agents sign them, without a server between."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel.http import KernelApp
from rebuno_sync.kernel.http.event_stream import EventStream
from rebuno_sync.signing import sign_body, sign_request
from rebuno_sync.types import LeaseKey

__all__ = ["AGENT", "OTHER", "SECRET", "TOKEN", "Answer", "Wire"]

AGENT, OTHER = "agent", "other"
SECRET = "shared"
TOKEN = "operators"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of the error envelope."""
        envelope = self.json
        assert envelope.keys() == {"code", "message"}
        return str(envelope["code"])


class Wire:
    """Speaks to ``app`` as a bearer, or as ``agent`` in the request form of signatures."""

    def __init__(self, kernel: Kernel, clock: ManualClock, app: KernelApp | None = None) -> None:
        self.app = app or KernelApp(kernel, TOKEN)
        self._clock = clock

    def send(
        self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        """Send exactly that. ``target`` has the query."""
        path, _, query = target.partition("?")
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "REQUEST_URI": target,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": io.BytesIO(body),
        }
        for name, value in (headers or {}).items():
            environ["HTTP_" + name.upper().replace("-", "_")] = value
        started: list[Any] = []

        def start(status: str, sent: list[tuple[str, str]], _: object = None) -> Any:
            started.extend((status, sent))

        content = _whole(self.app(environ, start))  # type: ignore[arg-type]
        status, sent = started
        answer = Answer(int(status[:3]), dict(sent), content)
        if answer.status == 204:
            assert (answer.body, answer.headers) == (b"", {})
        elif answer.headers.get("Content-Type") != "text/event-stream":
            assert answer.headers["Content-Length"] == str(len(answer.body))
        if answer.headers.get("Content-Type", "").startswith("application/json"):
            assert answer.body.endswith(b"\n")
        return answer

    def operate(self, method: str, target: str, body: object = None) -> Answer:
        """As an operator. ``body``: bytes, or what is sent as JSON."""
        return self.send(method, target, _bytes(body), {"Authorization": f"Bearer {TOKEN}"})

    def signed(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        lease: LeaseKey | None = None,
        *,
        agent: str = AGENT,
        secret: str = SECRET,
    ) -> dict[str, str]:
        """The headers of an agent's request."""
        timestamp = str(self._clock.wall() // 1_000_000)
        dispatch_id = lease.dispatch_id if lease else ""
        attempt = str(lease.attempt) if lease else ""
        signature = sign_request(
            secret,
            method=method,
            target=target,
            timestamp=timestamp,
            dispatch_id=dispatch_id,
            dispatch_attempt=attempt,
            body=body,
        )
        headers = {
            "Rebuno-Agent-Id": agent,
            "Rebuno-Timestamp": timestamp,
            "Rebuno-Signature": signature,
        }
        if lease:
            headers |= {"Rebuno-Dispatch-Id": dispatch_id, "Rebuno-Dispatch-Attempt": attempt}
            headers |= {"Rebuno-Runner": lease.runner} if lease.runner else {}
        return headers

    def act(
        self,
        method: str,
        target: str,
        body: object = None,
        lease: LeaseKey | None = None,
        *,
        agent: str = AGENT,
        more: dict[str, str] | None = None,
    ) -> Answer:
        """As an agent. ``more``: headers besides those of the signature and the lease."""
        content = _bytes(body)
        headers = self.signed(method, target, content, lease, agent=agent)
        return self.send(method, target, content, {**headers, **(more or {})})

    def in_body_form(self, method: str, target: str, body: bytes, lease: LeaseKey) -> Answer:
        """As an agent of the first generations; those of the very first name no attempt (0)."""
        headers = {
            "Rebuno-Agent-Id": AGENT,
            "Rebuno-Signature": sign_body(SECRET, body),
            "Rebuno-Dispatch-Id": lease.dispatch_id,
        }
        if lease.attempt:
            headers["Rebuno-Dispatch-Attempt"] = str(lease.attempt)
        return self.send(method, target, body, headers)


def _whole(body: Iterable[bytes]) -> bytes:
    """What a response has; of one without an end, what it has now."""
    if isinstance(body, EventStream):
        body.close()
        return body.take()
    return b"".join(body)


def _bytes(body: object) -> bytes:
    if isinstance(body, bytes):
        return body
    return b"" if body is None else json.dumps(body).encode()
