"""One model call is one step: made once, and replayed byte for byte without the provider."""

from __future__ import annotations

import importlib
import io
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from requests.adapters import HTTPAdapter
from support.provider_server import (
    Provider,
    anthropic_stream,
    chat_completion,
    chat_stream,
    converse_stream,
    plain,
    stream,
)
from support.replays import and_a_step, live_and_replayed, model_calls, only_step

import rebuno_sync as rebuno
from rebuno_sync import llm
from rebuno_sync.kernel import Kernel

from .clients import HTTP_CLIENTS, MESSAGES, POSTS, STREAMS, bedrock, claude, gpt

Call = Callable[[Provider, str], Any]


def _chat(provider: Provider, library: str) -> Any:
    return gpt(provider, library).chat.completions.create(model="m", messages=MESSAGES).to_json()


def _chat_stream(provider: Provider, library: str) -> Any:
    client = gpt(provider, library)
    chunks = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    return [chunk.to_json() for chunk in chunks]


def _responses(provider: Provider, library: str) -> Any:
    return gpt(provider, library).responses.create(model="m", input="Hello?").to_json()


def _raw_response(provider: Provider, library: str) -> Any:
    completions = gpt(provider, library).chat.completions
    raw = completions.with_raw_response.create(model="m", messages=MESSAGES)
    return raw.text, raw.headers["content-type"], raw.parse().to_json()


def _streaming_response(provider: Provider, library: str) -> Any:
    completions = gpt(provider, library).chat.completions
    create = completions.with_streaming_response.create
    with create(model="m", messages=MESSAGES) as response:
        return list(response.iter_lines())


def _message(provider: Provider, library: str) -> Any:
    messages = claude(provider, library).messages
    return messages.create(model="m", max_tokens=9, messages=MESSAGES).to_json()


def _message_stream(provider: Provider, library: str) -> Any:
    messages = claude(provider, library).messages
    with messages.stream(model="m", max_tokens=9, messages=MESSAGES) as events:
        return events.get_final_message().to_json()


SDK_CALLS: dict[str, Call] = {
    "chat": _chat,
    "chat, streamed": _chat_stream,
    "responses": _responses,
    "raw response": _raw_response,
    "streaming response": _streaming_response,
    "message": _message,
    "message, streamed": _message_stream,
}


@pytest.mark.parametrize(
    ("name", "library"),
    # Anthropic's SDK takes a client of httpx2 alone.
    [(name, "httpx2") for name in SDK_CALLS]
    + [(name, "httpx") for name in SDK_CALLS if "message" not in name],
)
def test_c26_a_call_of_a_providers_sdk_is_replayed_without_a_request(
    kernel: Kernel, provider: Provider, name: str, library: str
) -> None:
    """One step, one request; live and replayed give the same."""
    live, replayed = live_and_replayed(kernel, lambda: SDK_CALLS[name](provider, library))
    assert live == replayed
    assert not isinstance(live, Exception), live
    assert len(provider.requests) == 1
    step = only_step(kernel)
    assert (step.kind, step.target, step.status) == ("llm_call", "m", "succeeded")
    assert step.usage is not None
    assert (step.usage.input_tokens, step.usage.output_tokens) == (11, 7)


@pytest.mark.parametrize("name", POSTS)
def test_a_plain_request_is_replayed_without_the_provider(
    kernel: Kernel, provider: Provider, name: str
) -> None:
    """Whatever library sends it."""
    url = f"{provider.url}/v1/chat/completions"
    live, replayed = live_and_replayed(kernel, lambda: POSTS[name](url))
    assert live == replayed
    assert not isinstance(live, Exception), live
    assert len(provider.requests) == 1
    assert only_step(kernel).status == "succeeded"


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("gzipped", [False, True])
def test_c26_a_stream_arrives_byte_for_byte_live_and_replayed(
    kernel: Kernel, provider: Provider, name: str, gzipped: bool
) -> None:
    """Also one that is packed on its way."""
    provider.answer(stream(chat_stream(["über", "𝄞", "x" * 9000]), gzipped=gzipped))
    live, replayed = live_and_replayed(kernel, lambda: b"".join(STREAMS[name](provider.url)))
    assert live == replayed == b"".join(chat_stream(["über", "𝄞", "x" * 9000]))
    assert len(provider.requests) == 1
    assert only_step(kernel).result["headers"]["content-type"] == "text/event-stream"


@pytest.mark.parametrize("name", POSTS)
def test_c26_a_packed_answer_is_recorded_unpacked(
    kernel: Kernel, provider: Provider, name: str
) -> None:
    """And says nothing of its packing to the client, live or replayed."""
    provider.answer(plain(chat_completion("x" * 5000), gzipped=True))
    live, replayed = live_and_replayed(kernel, lambda: POSTS[name](provider.url))
    assert live == replayed == only_step(kernel).result["body"]
    assert "x" * 5000 in live


@pytest.mark.parametrize("name", STREAMS)
def test_chunks_of_a_stream_arrive_when_they_are_sent(
    kernel: Kernel, provider: Provider, name: str
) -> None:
    """The second chunk is sent only when the first was read."""
    read = threading.Event()
    provider.answer(stream([b"data: 1\n\n", b"data: 2\n\n"], before=lambda n: n and read.wait(20)))

    def handler() -> list[bytes]:
        got = []
        for chunk in STREAMS[name](provider.url):
            got.append(chunk)
            read.set()
        return got

    def run() -> None:
        assert b"".join(handler()) == b"data: 1\n\ndata: 2\n\n"

    rebuno.run(run, kernel=kernel)


@pytest.mark.parametrize("name", STREAMS)
def test_c26_a_stream_that_is_closed_early_is_recorded_as_far_as_it_was_read(
    kernel: Kernel, provider: Provider, name: str
) -> None:
    """Closing is what the reader chose, and chooses again on a replay."""

    def first() -> bytes:
        chunks: Any = STREAMS[name](f"{provider.url}/v1/chat/completions")
        found: bytes = next(chunks)
        chunks.close()
        return found

    live, replayed = live_and_replayed(kernel, and_a_step(first))
    assert live == replayed == chat_stream()[0]
    [step] = model_calls(kernel)
    assert step.status == "succeeded"
    assert step.result["truncated"] is True
    assert len(provider.requests) == 1


def test_c26_sdk_streams_that_are_closed_early_are_replayed(
    kernel: Kernel, provider: Provider
) -> None:
    """Through the SDK's own ``close``, and by leaving its ``with`` block."""

    def first() -> list[str]:
        create = gpt(provider).chat.completions.create
        with create(model="m", messages=MESSAGES, stream=True) as chunks:
            one = next(iter(chunks)).to_json()
        with claude(provider).messages.stream(model="m", max_tokens=9, messages=MESSAGES) as events:
            return [one, next(iter(events)).to_json()]

    live, replayed = live_and_replayed(kernel, and_a_step(first))
    assert live == replayed
    assert len(provider.requests) == 2


def test_c26_amazons_binary_stream_is_replayed(kernel: Kernel, provider: Provider) -> None:
    """It is no text, and recorded all the same, with its usage."""
    provider.answer(stream(converse_stream(), content_type="application/vnd.amazon.eventstream"))

    def converse() -> list[Any]:
        client = bedrock(provider.url)
        try:
            return list(client.converse_stream(modelId="m", messages=[])["stream"])
        finally:
            client.close()

    live, replayed = live_and_replayed(kernel, converse)
    assert live == replayed
    assert len(live) == 6
    assert len(provider.requests) == 1
    step = only_step(kernel)
    assert step.usage is not None
    assert (step.usage.input_tokens, step.usage.output_tokens) == (11, 7)


def test_a_second_iteration_goes_on_where_the_first_stopped(
    kernel: Kernel, provider: Provider
) -> None:
    """There is one pass over what arrives."""

    def twice() -> tuple[bytes, bytes]:
        body = {"model": "m", "stream": True}
        url = f"{provider.url}/v1/chat/completions"
        with (
            rebuno.http_client() as session,
            session.post(url, json=body, stream=True) as answer,
        ):
            first = next(answer.raw.stream())
            return first, b"".join(answer.raw.stream())

    (first, rest), replayed = live_and_replayed(kernel, twice)
    assert first + rest == b"".join(chat_stream())
    assert b"".join(replayed) == first + rest


def test_c26_a_file_upload_passes_through(kernel: Kernel, provider: Provider) -> None:
    """It is no model call: it is sent each time."""

    def upload() -> int:
        file = ("a.jsonl", io.BytesIO(b"{}\n"))
        gpt(provider).files.with_raw_response.create(file=file, purpose="batch")
        with rebuno.http_client() as session:
            return session.get(provider.url).status_code

    assert live_and_replayed(kernel, upload) == (200, 200)
    assert len(provider.requests) == 4
    assert kernel.list_steps(kernel.list(limit=1).executions[0].id) == []


def test_the_session_keeps_its_hooks_and_its_adapter(kernel: Kernel, provider: Provider) -> None:
    """Hooks see the response, live and replayed; the adapter that sends is one's own."""
    seen: list[int] = []
    sent: list[str] = []

    class Counting(HTTPAdapter):
        def send(self, request: Any, *args: Any, **kwargs: Any) -> requests.Response:
            sent.append(request.url)
            return super().send(request, *args, **kwargs)

    def call() -> str:
        with requests.Session() as session:
            session.mount("http://", llm.RecordingAdapter(Counting()))
            session.hooks["response"].append(lambda r, **_: seen.append(r.status_code))
            return session.post(provider.url, json={"model": "m"}).text

    live, replayed = live_and_replayed(kernel, call)
    assert live == replayed
    assert seen == [200, 200]
    assert len(sent) == 1


@pytest.mark.parametrize("library", HTTP_CLIENTS)
def test_a_transport_records_around_another_one(
    kernel: Kernel, provider: Provider, library: str
) -> None:
    """For a client that is built elsewhere."""
    httpx = importlib.import_module(library)

    def call() -> Any:
        transport = llm.httpx_transport(httpx.HTTPTransport(retries=1), library=library)
        with httpx.Client(transport=transport) as client:
            return client.post(provider.url, json={"model": "m"}).json()

    live, replayed = live_and_replayed(kernel, call)
    assert live == replayed
    assert len(provider.requests) == 1


@pytest.mark.parametrize("sound", [bytes(range(256)), b"\0\0 as text"])
def test_a_body_that_is_no_text_is_replayed_as_it_was(
    kernel: Kernel, provider: Provider, sound: bytes
) -> None:
    """Speech, say."""
    provider.answer(plain(sound, Content_Type="audio/mpeg"))

    def speak() -> bytes:
        speech = gpt(provider).audio.speech.create(model="m", voice="alloy", input="Hello.")
        return bytes(speech.content)

    assert live_and_replayed(kernel, speak) == (sound, sound)
    assert len(provider.requests) == 1


@pytest.mark.parametrize("library", ["requests", "httpx2", "httpx"])
def test_connections_are_kept_between_calls(
    kernel: Kernel, provider: Provider, library: str
) -> None:
    """As by the bare client; also after a stream."""

    def handler() -> None:
        client: Any = (
            rebuno.http_client() if library == "requests" else rebuno.httpx_client(library=library)
        )
        with client:
            for number in range(4):
                body = {"model": "m", "number": number, "stream": number % 2 == 1}
                client.post(f"{provider.url}/v1/chat/completions", json=body)

    rebuno.run(handler, kernel=kernel)
    assert len(provider.requests) == 4
    assert provider.connections == 1


@pytest.mark.parametrize("library", ["requests", "httpx2", "httpx"])
def test_json_that_says_not_what_it_is_is_recorded(
    kernel: Kernel, provider: Provider, library: str
) -> None:
    """Bytes without a content type."""

    def call() -> str:
        body = b' {"model": "m"}'
        if library == "requests":
            with rebuno.http_client() as session:
                return session.post(provider.url, data=body).text
        with rebuno.httpx_client(library=library) as client:
            return str(client.post(provider.url, content=body).text)

    live, replayed = live_and_replayed(kernel, call)
    assert live == replayed
    assert len(provider.requests) == 1


@pytest.mark.parametrize(
    ("events", "complete"),
    [
        (chat_stream(), True),
        (chat_stream()[:-1], False),
        (anthropic_stream(), True),
        (anthropic_stream()[:-1], False),
        ([b"event: response.completed\r\ndata: {}\r\n\r\n"], True),
        ([b"event: response.created\ndata: [DONE] is no end here\n\n"], False),
    ],
)
def test_a_stream_that_is_closed_after_its_last_event_is_complete(
    kernel: Kernel, provider: Provider, events: list[bytes], complete: bool
) -> None:
    """SDKs stop reading there: it is recorded at once, however it was cut into chunks."""
    sent = b"".join(events)
    pieces = [sent[i : i + 3] for i in range(0, len(sent), 3)]
    more = threading.Event()
    provider.answer(stream([*pieces, b"\n"], before=lambda n: n == len(pieces) and more.wait(20)))
    statuses: list[str] = []

    def handler() -> None:
        chunks: Any = STREAMS["httpx2"](provider.url)
        read = b""
        while read != sent:
            read += next(chunks)
        chunks.close()
        more.set()
        execution_id = rebuno.execution().id
        statuses.extend(step.status for step in kernel.list_steps(execution_id))

    rebuno.run(handler, kernel=kernel)
    assert statuses == ["succeeded" if complete else "executing"]
    assert only_step(kernel).result.get("truncated", False) is not complete


PROGRAM = """
import os, signal, sys
import rebuno_sync as rebuno

def handler(url: str) -> list[str]:
    got = []
    with rebuno.httpx_client() as client:
        for number in range(3):
            got.append(client.post(url, json={"model": "m", "number": number}).text)
            if number == 1 and rebuno.execution().dispatch_attempt == 1:
                os.kill(os.getpid(), signal.SIGKILL)
    return got

print(len(rebuno.run(handler, {"url": sys.argv[1]}, key="killed")))
"""


def test_a_killed_process_pays_for_no_call_twice(tmp_path: Path, provider: Provider) -> None:
    """With a real ``SIGKILL`` after the second call."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), provider.url]
    first, second = (
        subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        for _ in range(2)
    )
    assert first.returncode == -signal.SIGKILL
    assert second.stdout == "3\n", second.stderr
    assert [request.json["number"] for request in provider.requests] == [0, 1, 2]
