"""An agent that gets SIGTERM while its handler reads a stream."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest
from support.children import ChildScript
from support.provider_server import Provider, chat_stream, stream
from support.services import SECRET, Service
from support.waiting import wait_until

PROGRAM = Path(__file__).parent / "programs" / "streaming_agent.py"


@pytest.mark.slow
def test_c10_sigterm_ends_an_agent_that_streams(tmp_path: Path, provider: Provider) -> None:
    """Within two seconds, whatever the provider sends; the step stays open, and the next agent
    makes the call again."""
    release = threading.Event()
    chunks = chat_stream()
    provider.answer(stream(chunks, before=lambda n: n == 1 and release.wait(30)), stream(chunks))
    with Service(tmp_path) as service:
        script = ChildScript(
            PROGRAM,
            tmp_path,
            options=(),
            url=service.url,
            secret=SECRET,
            provider=provider.url,
        )
        with script.start() as first:
            url = first.says(lambda said: isinstance(said, str), "its address")
            service.client.register_agent("streaming", url, SECRET)
            execution = service.client.create("streaming")
            first.hears({"read": "Hel"})
            began = time.monotonic()
            first.signal(signal.SIGTERM)
            first.hears("closed")
            assert time.monotonic() - began < 2.0
            assert first.returncode() == 0, first.errors
        release.set()
        [step] = service.client.list_steps(execution.id)
        assert step.status == "executing"
        with script.start() as second:
            url = second.says(lambda said: isinstance(said, str), "its address")
            service.client.register_agent("streaming", url, SECRET)
            wait_until(
                lambda: service.client.get(execution.id).status == "completed", "the completion"
            )
        [step] = service.client.list_steps(execution.id)
        assert (step.kind, step.status) == ("llm_call", "succeeded")
    assert len(provider.requests) == 2
