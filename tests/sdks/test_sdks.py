"""The real packages, live, killed and replayed: the provider is asked once for each call."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.children import ChildScript
from support.provider_server import Handler, Provider, Request, error, held, usual
from support.waiting import wait_until

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parent / "programs"
CLIENTS = {
    "openai-chat": 6,
    "openai-responses": 2,
    "anthropic": 5,
    "google-genai": 2,
    "bedrock": 3,
    "langchain": 2,
    "litellm": 2,
    "requests": 2,
}
"""Name -> how many kinds of calls it makes."""


class Script:
    """Answers as the provider would; fails the first ``Fail first.`` and keeps ``Hold.``."""

    def __init__(self, provider: Provider) -> None:
        self.release = threading.Event()
        self._failed = False
        self._provider = provider
        provider.answer(self)

    def __call__(self, request: Request, handler: Handler) -> None:
        if b"Hold." in request.body:
            held(self.release, usual)(request, handler)
        elif b"Fail first." in request.body and not self._failed:
            self._failed = True
            error(500)(request, handler)
        else:
            usual(request, handler)

    def is_held(self) -> bool:
        return any(b"Hold." in request.body for request in self._provider.requests)


@pytest.mark.parametrize("client", CLIENTS)
def test_c26_a_killed_process_asks_for_nothing_again(
    tmp_path: Path, python: Path, provider: Provider, client: str
) -> None:
    """Plain, streamed, closed early, failed and retried: after a SIGKILL each gives the very same,
    without a request, and is one step. A cancel ends a call that is never answered (C7)."""
    script = Script(provider)
    child = ChildScript(
        PROGRAMS / "calls.py",
        tmp_path,
        python=python,
        options=(),
        client=client,
        url=provider.url,
        db=tmp_path / "kernel.db",
    )
    with child.start(cancels=False) as first:
        # Some packages take long to import.
        ended = first.process.poll
        wait_until(lambda: script.is_held() or ended() is not None, "the held call", 90)
        assert first.process.poll() is None, first.errors
        first.kill()
    live = first.said
    paid = Counter(request.body for request in provider.requests)
    script.release.set()
    with child.start(cancels=True) as second:
        last = second.result(90)
    replayed = second.said
    assert len(live) == 2
    assert replayed[:2] == live
    held_again = Counter(request.body for request in provider.requests) - paid
    assert [body.count(b"Hold.") for body in held_again.elements()] == [1]
    steps: list[Any] = [said for said in replayed if isinstance(said, list)]
    assert len(steps) == CLIENTS[client] + 2
    assert {(kind, status) for kind, _, status, _ in steps} == {("llm_call", "succeeded")}
    assert all("test" in target for _, target, _, _ in steps)
    seconds, requests = last["cancelled"]
    assert seconds < 1.0  # What C7 allows.
    assert requests == 1
