"""Pieces of model calls that agents of the async SDKs publish while they come."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from support.provider_server import Answer, Handler, Provider, Request

from .features import shows
from .sites import Site

pytestmark = pytest.mark.slow

PIECE = b'data: {"choices": [{"delta": {"content": "word"}}]}\n\n'
MOST_PIECES = 400


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as provider:
        yield provider


def until(heard: threading.Event) -> Answer:
    """A streamed answer that goes on until it was heard."""

    def answer(request: Request, handler: Handler) -> None:
        handler.start(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
        for _ in range(MOST_PIECES):
            handler.chunk(PIECE)
            if heard.wait(0.03):
                break
        handler.chunk(b"")

    return answer


@shows("live pieces of model calls", "model calls")
def test_pieces_of_an_async_agent_are_heard_while_it_asks(site: Site, provider: Provider) -> None:
    """In order, of the step that is running; what is recorded in the end is the whole."""
    heard = threading.Event()
    provider.answer(until(heard))
    execution_id = site.begin("ask", url=provider.url, questions=["why"], stream=True)
    stream = site.client.stream(execution_id)
    first, second = next(stream), next(stream)
    [step] = site.client.list_steps(execution_id)
    assert (step.kind, step.status) == ("llm_call", "executing")
    heard.set()
    assert first.step_id == second.step_id == step.step_id
    assert second.seq == first.seq + 1
    [[status, text]] = site.end(execution_id)
    assert status == 200
    assert text == PIECE.decode() * text.count("data: ")
    assert first.data + second.data in text
    [step] = site.client.list_steps(execution_id)
    assert step.result["body"] == text
