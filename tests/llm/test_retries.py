"""A logical call is one step, however often the provider's SDK asks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import requests
from requests.adapters import HTTPAdapter
from support.attempts import attempt, created
from support.provider_server import (
    Provider,
    anthropic_message,
    chat_completion,
    error,
    plain,
    reset,
)
from support.replays import and_a_step, live_and_replayed, model_calls
from urllib3.util import Retry

import rebuno_sync as rebuno
from rebuno_sync import llm
from rebuno_sync.kernel import Kernel

from .clients import MESSAGES, bedrock, claude, gpt


def _gpt(provider: Provider, **options: Any) -> str:
    create = gpt(provider, **options).chat.completions.create
    return create(model="m", messages=MESSAGES).to_json()


def _claude(provider: Provider, **options: Any) -> str:
    create = claude(provider, **options).messages.create
    return create(model="m", max_tokens=9, messages=MESSAGES).to_json()


def _bedrock(provider: Provider) -> Any:
    client = bedrock(provider.url)
    try:
        return client.converse(modelId="m", messages=[{"role": "user", "content": []}])
    finally:
        client.close()


SDKS: dict[str, Callable[..., Any]] = {"openai": _gpt, "anthropic": _claude}
ANSWERS = {"openai": chat_completion(), "anthropic": anthropic_message()}


@pytest.mark.parametrize("sdk", SDKS)
def test_c23_retries_of_the_sdk_are_one_step(kernel: Kernel, provider: Provider, sdk: str) -> None:
    """500, 500, 200: three requests, one step with the last answer, replayed without a request."""
    provider.answer(error(500), error(500), plain(ANSWERS[sdk]))
    live, replayed = live_and_replayed(kernel, lambda: SDKS[sdk](provider))
    assert live == replayed
    assert "Hello." in live
    assert len(provider.requests) == 3
    [step] = model_calls(kernel)
    assert step.status == "succeeded"


@pytest.mark.parametrize("sdk", SDKS)
def test_c23_retries_are_no_part_of_a_calls_identity(
    kernel: Kernel, provider: Provider, sdk: str
) -> None:
    """Retry counts, timeouts and user agents differ; each request has the step's own key."""
    provider.answer(error(500), plain(ANSWERS[sdk]))
    rebuno.run(lambda: SDKS[sdk](provider), agent="a", kernel=kernel)
    first, second = provider.requests
    assert first.headers["x-stainless-retry-count"] == "0"
    assert second.headers["x-stainless-retry-count"] == "1"
    [step] = model_calls(kernel)
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] == step.step_id


@pytest.mark.parametrize("sdk", SDKS)
def test_c23_a_call_that_fails_for_good_is_recorded_as_failed(
    kernel: Kernel, provider: Provider, sdk: str
) -> None:
    """The handler gets the provider's own error, live and on a replay, where nobody is asked."""
    provider.answer(error(503, "all busy", x_request_id="req-7"))
    live, replayed = live_and_replayed(kernel, and_a_step(lambda: SDKS[sdk](provider)))
    assert type(live) is type(replayed)
    assert live.status_code == replayed.status_code == 503
    assert str(live) == str(replayed)
    assert live.response.headers["x-request-id"] == replayed.response.headers["x-request-id"]
    assert len(provider.requests) == 3
    [step] = model_calls(kernel)
    assert step.status == "failed"
    assert step.error["response"]["status"] == 503


@pytest.mark.parametrize("sdk", SDKS)
def test_c23_retry_failed_makes_a_call_that_failed_for_good_again(
    kernel: Kernel, provider: Provider, sdk: str
) -> None:
    """What had succeeded before it is not asked again."""
    provider.answer(plain(ANSWERS[sdk]), error(503), plain(ANSWERS[sdk]))

    def handler() -> list[str]:
        return [SDKS[sdk](provider), SDKS[sdk](provider, max_retries=0)]

    def run(*, retry_failed: bool) -> Any:
        return rebuno.run(handler, key="k", agent="a", kernel=kernel, retry_failed=retry_failed)

    with pytest.raises(rebuno.ExecutionFailed, match="503"):
        run(retry_failed=False)
    assert len(provider.requests) == 2
    first, second = run(retry_failed=True)
    assert "Hello." in first
    assert "Hello." in second
    assert len(provider.requests) == 3


def test_a_failure_at_the_end_of_a_handler_is_recorded_with_its_end(
    kernel: Kernel, provider: Provider
) -> None:
    """No primitive comes after it."""
    provider.answer(error(503))
    with pytest.raises(rebuno.ExecutionFailed, match="InternalServerError"):
        rebuno.run(lambda: _gpt(provider, max_retries=0), agent="a", kernel=kernel)
    [step] = model_calls(kernel)
    assert step.status == "failed"


def test_a_failure_in_a_tool_is_recorded_before_the_tool(
    kernel: Kernel, provider: Provider
) -> None:
    """The body that made the call ends first."""
    provider.answer(error(503))

    @rebuno.tool
    def ask() -> str:
        return _gpt(provider, max_retries=0)

    def handler() -> None:
        with pytest.raises(rebuno.ToolError):
            ask()

    rebuno.run(handler, kernel=kernel)
    execution = kernel.list(limit=1).executions[0]
    failed = [e.payload["target"] for e in kernel.events(execution.id) if e.type == "step.failed"]
    assert failed == ["m", "ask"]


def test_c23_a_provider_says_how_long_to_wait_and_one_layer_waits(
    kernel: Kernel, provider: Provider
) -> None:
    """429 with ``Retry-After``: the SDK waits that long, once."""
    provider.answer(error(429, Retry_After="1"), plain(chat_completion()))
    began = time.monotonic()
    rebuno.run(lambda: _gpt(provider), agent="a", kernel=kernel)
    assert 1.0 <= time.monotonic() - began < 10.0
    assert len(provider.requests) == 2
    [step] = model_calls(kernel)
    assert step.status == "succeeded"


def test_what_the_provider_says_is_final_is_recorded_at_once(
    kernel: Kernel, provider: Provider
) -> None:
    """A bad request, and a server error that asks not to be retried."""
    provider.answer(error(400), error(500, x_should_retry="false"))
    statuses: list[str] = []

    def handler() -> None:
        for _ in range(2):
            with pytest.raises(Exception, match="scripted"):
                _gpt(provider)
            execution = rebuno.execution()
            statuses.extend(s.status for s in kernel.list_steps(execution.id))

    rebuno.run(handler, kernel=kernel)
    assert statuses == ["failed", "failed", "failed"]
    assert len(provider.requests) == 2


def test_a_lost_connection_is_retried_within_the_step(kernel: Kernel, provider: Provider) -> None:
    """The SDK connects again; one step has the answer."""
    provider.answer(reset, plain(chat_completion()))
    live, replayed = live_and_replayed(kernel, lambda: _gpt(provider))
    assert live == replayed
    [step] = model_calls(kernel)
    assert step.status == "succeeded"


def test_another_primitive_between_makes_it_another_call(
    kernel: Kernel, provider: Provider
) -> None:
    """The first has failed then, whatever its client says of the second."""
    provider.answer(error(503), plain({"ok": True}))

    def handler() -> list[int]:
        with rebuno.http_client() as session:
            first = session.post(provider.url, json={"model": "m"})
            rebuno.step("between", lambda: None)
            second = session.post(provider.url, json={"model": "m"})
            return [first.status_code, second.status_code]

    assert rebuno.run(handler, key="k", kernel=kernel) == [503, 200]
    assert [step.status for step in model_calls(kernel)] == ["failed", "succeeded"]


def test_the_same_call_asked_anew_by_an_sdk_is_another_step(
    kernel: Kernel, provider: Provider
) -> None:
    """Its SDK counts from 0 again: the program decided to, and decides so again on a replay."""
    provider.answer(error(503), plain(chat_completion()))

    def twice() -> list[str]:
        got = []
        for _ in range(2):
            try:
                got.append(_gpt(provider, max_retries=0))
            except Exception as failure:
                got.append(type(failure).__name__)
        return got

    live, replayed = live_and_replayed(kernel, twice)
    assert live == replayed
    assert live[0] == "InternalServerError"
    assert [step.status for step in model_calls(kernel)] == ["failed", "succeeded"]
    assert len(provider.requests) == 2


def test_a_loop_around_a_plain_client_is_one_call(kernel: Kernel, provider: Provider) -> None:
    """Who asks again after a 503, with nothing in between, retries; so it does on a replay."""
    provider.answer(error(503))

    def loop() -> list[int]:
        with rebuno.http_client() as session:
            return [session.post(provider.url, json={"model": "m"}).status_code for _ in range(3)]

    live, replayed = live_and_replayed(kernel, and_a_step(loop))
    assert live == replayed == [503, 503, 503]
    assert len(provider.requests) == 3
    [step] = model_calls(kernel)
    assert step.status == "failed"


def test_retries_of_an_adapter_keep_working(kernel: Kernel, provider: Provider) -> None:
    """urllib3's own, below the recorder."""
    provider.answer(error(503), error(503), plain({"ok": True}))
    retry = Retry(total=3, status_forcelist=[503], allowed_methods=None, backoff_factor=0)

    def call() -> Any:
        with requests.Session() as session:
            session.mount("http://", llm.RecordingAdapter(HTTPAdapter(max_retries=retry)))
            return session.post(provider.url, json={"model": "m"}).json()

    assert live_and_replayed(kernel, call) == ({"ok": True}, {"ok": True})
    assert len(provider.requests) == 3


def test_retries_of_amazons_sdk_are_one_step(kernel: Kernel, provider: Provider) -> None:
    """It signs each try anew and counts them in a header."""
    answer = {
        "output": {"message": {"role": "assistant", "content": [{"text": "Hello."}]}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18},
        "metrics": {"latencyMs": 1},
    }
    provider.answer(error(500), plain(answer))

    def text() -> Any:
        return _bedrock(provider)["output"]["message"]["content"][0]["text"]

    assert live_and_replayed(kernel, text) == ("Hello.", "Hello.")
    assert len(provider.requests) == 2
    [step] = model_calls(kernel)
    assert (step.target, step.status) == ("m", "succeeded")
    assert step.usage is not None
    assert step.usage.output_tokens == 7


def test_a_redirected_call_is_one_step(kernel: Kernel, provider: Provider) -> None:
    """The client follows; what is recorded is where it leads."""
    provider.answer(plain({}, 307, Location="/elsewhere"), plain({"ok": True}))

    def call() -> Any:
        with rebuno.httpx_client() as client:
            return client.post(provider.url, json={"model": "m"}).json()

    assert live_and_replayed(kernel, call) == ({"ok": True}, {"ok": True})
    assert [request.path for request in provider.requests] == ["/", "/elsewhere"]
    [step] = model_calls(kernel)
    assert step.status == "succeeded"


def test_a_call_that_was_interrupted_between_retries_goes_on_in_its_step(
    kernel: Kernel, provider: Provider
) -> None:
    """Nothing was recorded of it, so the next attempt calls again, under the same key."""
    provider.answer(error(503), plain(chat_completion()))
    execution_id = created(kernel)

    def handler() -> str:
        try:
            return _gpt(provider, max_retries=0)
        except Exception:
            raise KeyboardInterrupt from None

    with pytest.raises(KeyboardInterrupt):
        attempt(kernel, execution_id, handler)
    assert "Hello." in attempt(kernel, execution_id, handler).output
    [step] = kernel.list_steps(execution_id)
    assert step.status == "succeeded"
    first, second = provider.requests
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


def test_a_tool_that_is_tried_again_does_not_ask_a_second_time(
    kernel: Kernel, provider: Provider
) -> None:
    """What a model answered in a try that failed later is given to the next one."""
    tries: list[int] = []

    @rebuno.tool(retries=1)
    def ask() -> str:
        answer = _gpt(provider)
        tries.append(1)
        if len(tries) == 1:
            raise OSError("after the answer")
        return answer

    assert "Hello." in rebuno.run(lambda: ask(), agent="a", kernel=kernel)
    assert len(tries) == 2
    assert len(provider.requests) == 1


def test_a_tool_that_is_tried_again_for_a_failed_call_asks_anew(
    kernel: Kernel, provider: Provider
) -> None:
    """The retry is there for its sake."""
    provider.answer(error(400), plain(chat_completion()))

    @rebuno.tool(retries=1)
    def ask() -> str:
        return _gpt(provider)

    assert "Hello." in rebuno.run(lambda: ask(), agent="a", kernel=kernel)
    assert [step.status for step in model_calls(kernel)] == ["failed", "succeeded"]
