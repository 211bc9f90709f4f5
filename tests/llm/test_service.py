"""Model calls of an agent whose kernel is elsewhere."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.provider_server import Provider, chat_stream, held, plain, stream
from support.services import Service
from support.waiting import wait_until

import rebuno_sync as rebuno

from .clients import MESSAGES, POSTS, STREAMS, gpt


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path) as service:
        yield service


def test_a_call_over_http_is_recorded_with_its_usage(service: Service, provider: Provider) -> None:
    """As in process."""

    def handler() -> str:
        return gpt(provider).chat.completions.create(model="m", messages=MESSAGES).to_json()

    service.agent(handler)
    assert "Hello." in service.run()
    execution_id = service.client.list().executions[0].id
    [step] = service.client.list_steps(execution_id)
    assert step.usage is not None
    assert (step.usage.input_tokens, step.usage.output_tokens) == (11, 7)
    [event] = [e for e in service.client.events(execution_id) if e.type == "step.succeeded"]
    assert event.payload["usage"] == {"input_tokens": 11, "output_tokens": 7}


@pytest.mark.parametrize("name", STREAMS)
def test_the_pieces_of_a_stream_are_accepted(
    service: Service, provider: Provider, name: str
) -> None:
    """In order and without a gap; the stream is recorded whole."""
    sent = chat_stream(["x" * 900] * 9)
    provider.answer(stream(sent))

    def handler() -> int:
        return sum(len(chunk) for chunk in STREAMS[name](provider.url))

    service.agent(handler)
    assert service.run() == len(b"".join(sent))
    pieces = [json.loads(request.body) for request in service.wire.of("stream")]
    assert [piece["seq"] for piece in pieces] == list(range(len(pieces)))
    assert "".join(piece["data"] for piece in pieces).encode() == b"".join(sent)


@pytest.mark.parametrize("name", POSTS)
def test_c7_a_cancel_at_the_kernel_ends_a_call_under_way(
    service: Service, provider: Provider, name: str
) -> None:
    """Within a second, by the kernel's notice."""
    release = threading.Event()
    provider.answer(held(release, plain({}), 15.0))
    ended = threading.Event()

    def handler() -> None:
        try:
            POSTS[name](provider.url)
        finally:
            ended.set()

    service.agent(handler)
    execution = service.client.create("served")
    wait_until(lambda: provider.requests, "the call")
    service.client.cancel(execution.id)
    began = time.monotonic()
    assert ended.wait(10)
    assert time.monotonic() - began < 1.0
    release.set()
    assert service.client.get(execution.id).status == "cancelled"


def test_c10_closing_an_agent_ends_a_stream_and_leaves_its_step_to_the_next(
    service: Service, provider: Provider
) -> None:
    """The step is not marked failed; the next agent calls again under the same step."""
    release, read = threading.Event(), threading.Event()
    chunks = chat_stream()
    provider.answer(stream(chunks, before=lambda n: n == 1 and release.wait(15)), stream(chunks))

    def handler() -> int:
        size = 0
        for chunk in STREAMS["httpx2"](provider.url):
            size += len(chunk)
            read.set()
        return size

    first = service.agent(handler, grace=0.2)
    execution = service.client.create("served")
    assert read.wait(20)
    began = time.monotonic()
    first.close()
    assert time.monotonic() - began < 2.0
    release.set()
    service.agent(handler)
    done: Any = service.client.wait(execution.id, timeout=20)
    assert done.output == len(b"".join(chunks))
    [step] = service.client.list_steps(execution.id)
    assert step.status == "succeeded"
    assert len(provider.requests) == 2
    keys = {request.headers["idempotency-key"] for request in provider.requests}
    assert keys == {step.step_id}


def test_c5_calls_of_a_pool_are_each_made_once(service: Service, provider: Provider) -> None:
    """Identical ones too."""

    def ask(model: str) -> Any:
        with rebuno.http_client() as session:
            return session.post(f"{provider.url}/v1/messages", json={"model": model}).json()["id"]

    def handler() -> list[str]:
        with rebuno.ThreadPoolExecutor(4) as pool:
            return list(pool.map(ask, ["a", "b", "a", "c"]))

    service.agent(handler)
    assert service.run() == ["msg_1"] * 4
    assert len(provider.requests) == 4
    steps = service.client.list_steps(service.client.list().executions[0].id)
    assert sorted((step.target, step.occurrence) for step in steps) == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("c", 0),
    ]
