"""What agents and operators do in these tests, in a word each."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from rebuno_sync.kernel import Kernel
from rebuno_sync.types import LeaseKey

from .wire import AGENT, Answer, Wire

__all__ = ["Inbox", "Sent", "path_of", "start", "submit"]


class Sent:
    """One webhook on its way."""

    def __init__(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        self.url = url
        self.headers = list(headers)
        self.body = body
        self.fields: dict[str, Any] = json.loads(body)
        self.lease = LeaseKey(
            self.fields["execution_id"],
            self.fields["dispatch_id"],
            self.fields["dispatch_attempt"],
        )


class Inbox:
    """A ``Deliver`` that keeps webhooks, for a kernel whose rounds the test makes by hand."""

    def __init__(self, kernel: Kernel) -> None:
        self.answer: Callable[[Sent], int] = lambda _: 200
        self.sent: list[Sent] = []
        self._dispatcher = kernel.dispatcher()
        self._dispatcher.deliver_webhooks(self)

    def __call__(
        self, url: str, headers: Sequence[tuple[str, str]], body: bytes, timeout: float
    ) -> int:
        webhook = Sent(url, headers, body)
        self.sent.append(webhook)
        return self.answer(webhook)

    def round(self) -> list[Sent]:
        """One round of the dispatcher: what it sent."""
        before = len(self.sent)
        self._dispatcher.dispatch_once()
        assert self._dispatcher.join(20.0), "a delivery is still under way"
        return self.sent[before:]

    def seconds_to_next(self) -> float:
        return self._dispatcher.dispatch_once()

    def lease(self, execution_id: str) -> LeaseKey:
        """The execution's next attempt."""
        (found,) = (sent.lease for sent in self.round() if sent.lease.execution_id == execution_id)
        return found


def start(kernel: Kernel, inbox: Inbox, agent: str = AGENT) -> LeaseKey:
    """A new execution and its first attempt."""
    return inbox.lease(kernel.create(agent).id)


def path_of(lease: LeaseKey, rest: str = "") -> str:
    return f"/v0/executions/{lease.execution_id}{rest}"


def submit(wire: Wire, lease: LeaseKey, args: object = None, **more: Any) -> Answer:
    """Submit a call of the tool ``t``."""
    body = {"kind": "tool_call", "target": "t", "args": args, **more.pop("fields", {})}
    return wire.act("POST", path_of(lease, "/steps"), body, lease, **more)
