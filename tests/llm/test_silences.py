"""A provider may be silent for longer than a lease."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from support.provider_server import Provider, held, plain, stream

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

from .clients import POSTS, STREAMS

_LEASE_SECONDS = 1.0
_SILENCE_SECONDS = 3 * _LEASE_SECONDS


@pytest.mark.slow
@pytest.mark.parametrize("name", ["requests", "httpx2", "httpx"])
def test_c25_heartbeats_go_on_while_a_provider_is_silent(
    tmp_path: Path, provider: Provider, name: str
) -> None:
    """Before the headers and in the middle of a stream: one attempt, each call once."""
    pause = threading.Event()
    provider.answer(
        held(pause, plain({"ok": True}), _SILENCE_SECONDS),
        stream([b"data: 1\n\n", b"data: 2\n\n"], before=lambda n: pause.wait(_SILENCE_SECONDS * n)),
    )

    def handler() -> int:
        POSTS[name](provider.url)
        assert b"".join(STREAMS[name](provider.url)) == b"data: 1\n\ndata: 2\n\n"
        return rebuno.execution().dispatch_attempt

    with Kernel(tmp_path / "silent.db", lease_timeout=_LEASE_SECONDS) as kernel:
        assert rebuno.run(handler, kernel=kernel) == 1
        steps = kernel.list_steps(kernel.list().executions[0].id)
    assert [step.status for step in steps] == ["succeeded", "succeeded"]
    assert len(provider.requests) == 2
