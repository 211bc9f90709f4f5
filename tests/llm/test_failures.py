"""Calls that get no answer: the step is closed, and a replay raises the same."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from typing import Any

import pytest
from support.attempts import attempt, created
from support.provider_server import Provider, broken_off, chat_stream, held, plain
from support.replays import and_a_step, live_and_replayed, model_calls

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

from .clients import MESSAGES, POSTS, STREAMS, claude, gpt


def _closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def _same(live: Any, replayed: Any) -> None:
    assert isinstance(live, Exception)
    assert type(live) is type(replayed)
    assert str(live) == str(replayed)


@pytest.mark.parametrize("name", [name for name in POSTS if name != "botocore"])
def test_c24_a_closed_port_closes_the_step(kernel: Kernel, name: str) -> None:
    """With the library's own error, live and on a replay."""
    url = _closed_port()
    live, replayed = live_and_replayed(kernel, and_a_step(lambda: POSTS[name](url)))
    _same(live, replayed)
    assert "Connect" in type(live).__name__
    [step] = model_calls(kernel)
    assert step.status == "failed"
    assert type(live).__name__ in step.error["type"]


@pytest.mark.parametrize("name", [name for name in POSTS if name != "botocore"])
def test_c24_a_tls_error_closes_the_step(kernel: Kernel, provider: Provider, name: str) -> None:
    """The server speaks no TLS."""
    url = provider.url.replace("http:", "https:")
    live, replayed = live_and_replayed(kernel, and_a_step(lambda: POSTS[name](url)))
    _same(live, replayed)
    [step] = model_calls(kernel)
    assert step.status == "failed"


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_c24_a_timeout_closes_the_step(kernel: Kernel, provider: Provider, sdk: str) -> None:
    """The SDK's own timeout error, live and on a replay."""
    release = threading.Event()
    provider.answer(held(release, plain({})))

    def call() -> Any:
        options: Any = {"timeout": 0.2, "max_retries": 0}
        if sdk == "openai":
            return gpt(provider, **options).chat.completions.create(model="m", messages=MESSAGES)
        return claude(provider, **options).messages.create(
            model="m", max_tokens=9, messages=MESSAGES
        )

    live, replayed = live_and_replayed(kernel, and_a_step(call))
    release.set()
    _same(live, replayed)
    assert type(live).__name__ == "APITimeoutError"
    [step] = model_calls(kernel)
    assert step.status == "failed"


@pytest.mark.parametrize("name", POSTS)
def test_c24_an_interrupted_call_is_made_again_in_its_step(
    kernel: Kernel, provider: Provider, name: str
) -> None:
    """Ctrl-C during a call ends the attempt; the next one goes on with that step and closes it."""
    execution_id = created(kernel)
    main = threading.main_thread().ident
    assert main is not None

    def interrupt(request: Any, handler: Any) -> None:
        signal.pthread_kill(main, signal.SIGINT)
        plain({}, 500)(request, handler)

    provider.answer(interrupt, plain({"ok": True}))
    with pytest.raises(KeyboardInterrupt):
        attempt(kernel, execution_id, lambda **_: POSTS[name](provider.url))
    assert attempt(kernel, execution_id, lambda **_: POSTS[name](provider.url)).output
    [step] = kernel.list_steps(execution_id)
    assert step.status == "succeeded"


@pytest.mark.parametrize("name", STREAMS)
def test_c24_a_stream_that_breaks_off_is_recorded_as_failed_with_what_came(
    kernel: Kernel, provider: Provider, name: str
) -> None:
    """A replay gives the same chunks and then the same error."""
    provider.answer(broken_off(chat_stream()[:2]))

    def read() -> tuple[bytes, str, str]:
        got = b""
        try:
            for chunk in STREAMS[name](provider.url):
                got += chunk
        except Exception as error:
            return got, type(error).__name__, str(error)
        raise AssertionError("the stream did not break off")

    live, replayed = live_and_replayed(kernel, read)
    assert live == replayed
    assert live[0] == b"".join(chat_stream()[:2])
    assert len(provider.requests) == 1
    [step] = model_calls(kernel)
    assert step.status == "failed"


@pytest.mark.parametrize("name", STREAMS)
def test_c24_an_interrupt_while_a_stream_is_read_leaves_nothing_truncated(
    kernel: Kernel, provider: Provider, name: str
) -> None:
    """What was read so far is no answer: the next attempt asks again, in the same step."""
    execution_id = created(kernel)

    def handler(**_: Any) -> int:
        size = 0
        for chunk in STREAMS[name](f"{provider.url}/v1/chat/completions"):
            size += len(chunk)
            if rebuno.execution().dispatch_attempt == 1:
                raise KeyboardInterrupt
        return size

    with pytest.raises(KeyboardInterrupt):
        attempt(kernel, execution_id, handler)
    assert attempt(kernel, execution_id, handler).output == len(b"".join(chat_stream()))
    [step] = kernel.list_steps(execution_id)
    assert step.status == "succeeded"
    assert "truncated" not in step.result


def test_c24_who_catches_the_interrupt_goes_on_after_a_failed_call(
    kernel: Kernel, provider: Provider
) -> None:
    """The step is closed then, by what comes next."""
    main = threading.main_thread().ident
    assert main is not None

    def interrupt(request: Any, handler: Any) -> None:
        signal.pthread_kill(main, signal.SIGINT)
        plain({}, 500)(request, handler)

    provider.answer(interrupt)

    def handler() -> str:
        with contextlib.suppress(KeyboardInterrupt):
            POSTS["httpx2"](provider.url)
        return "went on"

    assert rebuno.run(handler, kernel=kernel) == "went on"
    [step] = model_calls(kernel)
    assert step.status == "failed"
    assert "KeyboardInterrupt" in step.error["type"]


def test_a_stream_that_nobody_closes_is_recorded_at_the_end_of_its_body(
    kernel: Kernel, provider: Provider
) -> None:
    """As far as it was read."""
    left: list[Any] = []

    def handler() -> None:
        chunks: Any = STREAMS["httpx2"](f"{provider.url}/v1/chat/completions")
        next(chunks)
        left.append(chunks)

    rebuno.run(handler, kernel=kernel)
    [step] = model_calls(kernel)
    assert step.status == "succeeded"
    assert step.result["body"].encode() == chat_stream()[0]
    left[0].close()
