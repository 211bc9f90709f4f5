"""Recording clients where there is no execution: never silently unrecorded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.provider_server import Provider
from support.replays import model_calls

import rebuno_sync as rebuno
from rebuno_sync import NoActiveExecution, llm
from rebuno_sync.kernel import Kernel

from .clients import MESSAGES, POSTS, claude, gpt


@pytest.mark.parametrize("name", POSTS)
def test_c2_a_recording_client_outside_an_execution_raises(provider: Provider, name: str) -> None:
    """Nothing is sent; the error names the client, and both ways out."""
    told = (
        "a recording \\w+ client was called outside an execution: .*run.* Agent .*Nothing was sent"
    )
    with pytest.raises(NoActiveExecution, match=told + '.*outside="passthrough"'):
        POSTS[name](provider.url)
    assert provider.requests == []


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_c2_the_error_comes_through_a_providers_sdk_as_it_is(provider: Provider, sdk: str) -> None:
    """It is not retried and not wrapped."""
    calls: dict[str, Callable[[], Any]] = {
        "openai": lambda: gpt(provider).chat.completions.create(model="m", messages=MESSAGES),
        "anthropic": lambda: claude(provider).messages.create(
            model="m", max_tokens=9, messages=MESSAGES
        ),
    }
    with pytest.raises(NoActiveExecution):
        calls[sdk]()
    assert provider.requests == []


def test_c2_a_client_of_the_module_records_in_every_handler_and_thread(
    kernel: Kernel, provider: Provider
) -> None:
    """In a thread that has lost the execution it raises, and says how to carry it."""
    client = gpt(provider)

    def ask(n: int) -> str:
        return client.chat.completions.create(model=f"m{n}", messages=MESSAGES).to_json()

    def handler() -> None:
        with ThreadPoolExecutor(2) as plain, pytest.raises(NoActiveExecution, match="carry"):
            list(plain.map(ask, range(2)))
        with rebuno.ThreadPoolExecutor(2) as pool:
            list(pool.map(ask, range(2)))

    rebuno.run(handler, kernel=kernel)
    assert sorted(step.target for step in model_calls(kernel)) == ["m0", "m1"]
    assert len(provider.requests) == 2


@pytest.mark.parametrize("library", ["httpx2", "httpx", "requests"])
def test_c2_a_client_may_be_built_to_pass_through(provider: Provider, library: str) -> None:
    """Then it is an ordinary client outside."""
    client: Any = (
        rebuno.http_client(outside="passthrough")
        if library == "requests"
        else rebuno.httpx_client(library=library, outside="passthrough")
    )
    with client:
        assert client.post(provider.url, json={"model": "m"}).status_code == 200
    assert len(provider.requests) == 1


def test_a_wrong_word_for_outside_is_refused() -> None:
    """A typo must not turn recording off."""
    with pytest.raises(ValueError, match="'raise' or 'passthrough', not 'pass'"):
        llm.RecordingAdapter(outside="pass")
    with pytest.raises(TypeError, match=r"ignore must be a collection of names: \['user'\]"):
        rebuno.http_client(ignore="user")


def test_a_thread_that_outlived_its_handler_gets_no_call_through(
    kernel: Kernel, provider: Provider
) -> None:
    """As with every effect."""
    ended = threading.Event()
    raised: list[BaseException] = []

    def late() -> None:
        ended.wait(20)
        try:
            POSTS["requests"](provider.url)
        except NoActiveExecution as error:
            raised.append(error)

    threads: list[threading.Thread] = []

    def handler() -> None:
        threads.append(threading.Thread(target=rebuno.carry(late)))
        threads[0].start()

    rebuno.run(handler, kernel=kernel)
    ended.set()
    threads[0].join()
    assert "a thread outlived it" in str(raised[0])
    assert provider.requests == []
