"""``record_all``: the clients that a framework builds for itself."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest
import requests
from requests.adapters import HTTPAdapter
from support.provider_server import Provider
from support.replays import live_and_replayed, model_calls

import rebuno_sync as rebuno
from rebuno_sync import NoActiveExecution, llm
from rebuno_sync.kernel import Kernel

from .clients import MESSAGES, POSTS, amazon


def _httpx(library: str) -> Callable[[Provider], str]:
    def post(provider: Provider) -> str:
        httpx: Any = importlib.import_module(library)
        text: str = httpx.post(provider.url, json={"model": "m"}).text
        return text

    return post


def _openai(provider: Provider) -> str:
    with openai.OpenAI(api_key="k", base_url=provider.url) as client:
        return client.chat.completions.create(model="m", messages=MESSAGES).to_json()


def _anthropic(provider: Provider) -> str:
    with anthropic.Anthropic(api_key="k", base_url=provider.url) as client:
        message = client.messages.create(model="m", max_tokens=9, messages=MESSAGES)
        return message.to_json()


def _bedrock(provider: Provider) -> str:
    client = amazon().client("bedrock-runtime", endpoint_url=provider.url)
    try:
        body: bytes = client.invoke_model(modelId="m", body="{}")["body"].read()
        return body.decode()
    finally:
        client.close()


CALLS: dict[str, Callable[[Provider], str]] = {
    "requests": lambda p: requests.post(p.url, json={"model": "m"}).text,
    "httpx2": _httpx("httpx2"),
    "httpx": _httpx("httpx"),
    "openai": _openai,
    "anthropic": _anthropic,
    "botocore": _bedrock,
}


@pytest.fixture
def everywhere() -> Iterator[None]:
    with llm.record_all():
        yield


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("name", CALLS)
def test_every_client_of_the_process_records(kernel: Kernel, provider: Provider, name: str) -> None:
    """Plain ones, and those that an SDK builds."""
    live, replayed = live_and_replayed(kernel, lambda: CALLS[name](provider))
    assert live == replayed
    assert not isinstance(live, Exception), live
    assert len(provider.requests) == 1
    [step] = model_calls(kernel)
    assert step.target == "m"


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("name", POSTS)
def test_a_recording_client_records_once(kernel: Kernel, provider: Provider, name: str) -> None:
    """Not by itself and by the switch."""
    live, replayed = live_and_replayed(kernel, lambda: POSTS[name](provider.url))
    assert live == replayed
    assert len(model_calls(kernel)) == len(provider.requests) == 1


@pytest.mark.usefixtures("everywhere")
def test_requests_that_name_no_model_are_left_alone(kernel: Kernel, provider: Provider) -> None:
    """A chat message to colleagues, say."""

    def handler() -> None:
        requests.post(provider.url, json={"text": "hello"})
        requests.post(f"{provider.url}/models/gemini-x:generateContent", json={"contents": []})

    rebuno.run(handler, kernel=kernel)
    [step] = model_calls(kernel)
    assert step.target == "gemini-x"


def test_hosts_can_be_chosen(kernel: Kernel, provider: Provider) -> None:
    """All JSON requests to them, and no others."""

    def handler() -> None:
        requests.post(provider.url, json={"text": "hello"})

    with llm.record_all(hosts=["api.example.org"]):
        rebuno.run(handler, kernel=kernel)
    assert model_calls(kernel) == []
    with llm.record_all(hosts=["127.0.0.1"]):
        rebuno.run(handler, kernel=kernel)
    assert len(model_calls(kernel)) == 1


def test_it_undoes_itself() -> None:
    """With the last of several that were switched on, in whatever order they are stopped."""
    httpx2: Any = importlib.import_module("httpx2")
    before = HTTPAdapter.send, httpx2.HTTPTransport.handle_request
    first, second = llm.record_all(), llm.record_all(hosts=["a"])
    assert HTTPAdapter.send is not before[0]
    first.stop()
    first.stop()
    assert HTTPAdapter.send is not before[0]
    second.stop()
    assert (HTTPAdapter.send, httpx2.HTTPTransport.handle_request) == before


def test_outside_an_execution_nothing_happens_unless_wanted(provider: Provider) -> None:
    """The whole process sends through it."""
    with llm.record_all():
        assert requests.post(provider.url, json={"model": "m"}).ok
    with llm.record_all(outside="raise"), pytest.raises(NoActiveExecution):
        requests.post(provider.url, json={"model": "m"})
    assert len(provider.requests) == 1
