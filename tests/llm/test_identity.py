"""What makes two model calls the same call: the body, and nothing else."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from support.provider_server import Provider
from support.replays import live_and_replayed, model_calls, only_step

import rebuno_sync as rebuno
from rebuno_sync import llm
from rebuno_sync.kernel import Kernel

from .clients import MESSAGES, gpt


def _random(provider: Provider) -> Any:
    """A call whose body and headers have something new each time."""
    return gpt(provider).chat.completions.create(
        model="m",
        messages=MESSAGES,
        prompt_cache_key=str(uuid.uuid4()),
        timeout=10 + uuid.uuid4().int % 10,
        extra_headers={"x-trace": str(uuid.uuid4()), "user-agent": str(uuid.uuid4())},
    )


def test_what_frameworks_randomise_is_no_part_of_it(kernel: Kernel, provider: Provider) -> None:
    """It is sent, and neither recorded nor compared."""
    live, replayed = live_and_replayed(kernel, lambda: _random(provider).to_json())
    assert live == replayed
    [request] = provider.requests
    assert "prompt_cache_key" in request.json
    assert only_step(kernel).args == {"model": "m", "messages": MESSAGES}


@pytest.mark.parametrize("library", ["requests", "httpx2", "httpx"])
def test_more_can_be_left_out_by_name(kernel: Kernel, provider: Provider, library: str) -> None:
    """Besides the defaults, or instead of them."""
    ignore = llm.RANDOMISED | {"request_tag"}

    def call() -> str:
        client: Any = (
            rebuno.http_client(ignore=ignore)
            if library == "requests"
            else rebuno.httpx_client(library=library, ignore=ignore)
        )
        body = {"model": "m", "request_tag": str(uuid.uuid4())}
        with client:
            return str(client.post(provider.url, json=body).text)

    live, replayed = live_and_replayed(kernel, call)
    assert live == replayed
    assert len(provider.requests) == 1


def test_every_other_member_of_the_body_is_part_of_it(kernel: Kernel, provider: Provider) -> None:
    """Another temperature is another call."""

    def handler() -> None:
        for temperature in (0.1, 0.2):
            gpt(provider).chat.completions.create(
                model="m", messages=MESSAGES, temperature=temperature
            )

    rebuno.run(handler, kernel=kernel)
    first, second = model_calls(kernel)
    assert first.args_hash != second.args_hash
    assert first.occurrence == second.occurrence == 0


@pytest.mark.parametrize(
    ("path", "body", "target"),
    [
        ("/v1/chat/completions", {"model": "gpt-x"}, "gpt-x"),
        ("/v1beta/models/gemini-x:generateContent", {"contents": []}, "gemini-x"),
        ("/model/anthropic.claude-x%3A0/converse", {"messages": []}, "anthropic.claude-x:0"),
        ("/openai/deployments/mine/chat/completions", {"messages": []}, "mine"),
        ("/v1/anything", {"messages": []}, ""),
    ],
)
def test_the_target_is_the_model(
    kernel: Kernel, provider: Provider, path: str, body: Any, target: str
) -> None:
    """From the body, or from the path where providers name it there."""

    def handler() -> None:
        with rebuno.http_client() as session:
            session.post(provider.url + path, json=body)

    rebuno.run(handler, kernel=kernel)
    assert only_step(kernel).target == target


def test_an_idempotency_key_of_ones_own_is_left_alone(kernel: Kernel, provider: Provider) -> None:
    """The step's id goes out where there is none."""

    def handler() -> None:
        with rebuno.http_client() as session:
            session.post(provider.url, json={"model": "m"}, headers={"idempotency-key": "mine"})
            session.post(provider.url, json={"model": "m2"})

    rebuno.run(handler, kernel=kernel)
    first, second = provider.requests
    [step] = [step for step in model_calls(kernel) if step.target == "m2"]
    assert first.headers["idempotency-key"] == "mine"
    assert second.headers["idempotency-key"] == step.step_id
