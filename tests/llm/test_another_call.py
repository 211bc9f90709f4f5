"""The identical call made again is a step of its own where it is no retry, on a replay as live."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
import requests
from support.provider_server import Answer, Provider, broken_off, error, plain, stream
from support.replays import and_a_step, live_and_replayed, model_calls
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

BODY = {"model": "m", "messages": []}
STREAM = BODY | {"stream": True}
BYTES = json.dumps(BODY).encode()


def _asked(session: requests.Session, url: str, body: dict[str, Any]) -> str:
    """What came of a call."""
    try:
        answer = session.post(url, json=body)
        return f"{answer.status_code} {answer.text}"
    except requests.RequestException as failure:
        return type(failure).__name__


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (error(401), BODY),
        (error(503, X_Should_Retry="false"), BODY),
        (broken_off([b"data: 1\n\n"]), STREAM),
    ],
    ids=["refused", "not to be retried", "broken off"],
)
def test_a_call_after_a_final_failure_replays_with_its_own_answer(
    kernel: Kernel, provider: Provider, answer: Answer, body: dict[str, Any]
) -> None:
    """A failure that is final, then success: two steps, and a replay gives one after the other."""
    provider.answer(answer, plain({"n": 1}))

    def twice() -> list[str]:
        with rebuno.http_client() as session:
            return [_asked(session, provider.url, body) for _ in range(2)]

    live, replayed = live_and_replayed(kernel, and_a_step(twice))
    assert live == replayed
    assert live[1] == '200 {"n": 1}'
    assert len(provider.requests) == 2
    assert sorted(step.status for step in model_calls(kernel)) == ["failed", "succeeded"]


def test_a_call_to_another_address_is_no_retry(kernel: Kernel, provider: Provider) -> None:
    """A handler that falls back to a second provider falls back to it on a replay too."""
    provider.answer(error(503), plain({"n": 1}))

    def fall_back() -> str:
        with rebuno.http_client() as session:
            for name in ("first", "second"):
                if session.post(f"{provider.url}/{name}", json=BODY).ok:
                    return name
        return "none"

    live, replayed = live_and_replayed(kernel, and_a_step(fall_back))
    assert live == replayed == "second"
    assert len(provider.requests) == 2
    assert sorted(step.status for step in model_calls(kernel)) == ["failed", "succeeded"]


def _by_a_pool(ask: Callable[[int], str]) -> list[str]:
    with rebuno.ThreadPoolExecutor(1) as pool:
        return list(pool.map(ask, range(2)))


def _by_threads(ask: Callable[[int], str]) -> list[str]:
    given: list[str] = []
    for number in range(2):
        thread = threading.Thread(target=rebuno.carry(lambda n=number: given.append(ask(n))))
        thread.start()
        thread.join()
    return given


@pytest.mark.parametrize("spread", [_by_a_pool, _by_threads])
def test_what_a_thread_did_before_is_not_retried_by_what_it_does_next(
    kernel: Kernel, provider: Provider, spread: Callable[[Callable[[int], str]], list[str]]
) -> None:
    """Two carried calls, the first answered 503: two steps, also when one thread makes both."""
    provider.answer(error(503), plain({"n": 1}))

    def handler() -> list[str]:
        with rebuno.http_client() as session:
            return spread(lambda _: _asked(session, provider.url, BODY))

    live, replayed = live_and_replayed(kernel, and_a_step(handler))
    assert live == replayed
    assert [text[:3] for text in live] == ["503", "200"]
    assert len(provider.requests) == 2
    assert len(model_calls(kernel)) == 2


def test_a_stream_that_nobody_reads_ends_with_a_timed_tool(
    kernel: Kernel, provider: Provider
) -> None:
    """A tool with a timeout runs in a thread of its own; what it leaves open is closed as ever."""
    provider.answer(stream([b"data: 1\n\n", b"data: [DONE]\n\n"]))
    kept = []

    @rebuno.tool(timeout=60)
    def opens() -> int:
        kept.append(session.post(provider.url, json=STREAM, stream=True))
        return 1

    with rebuno.http_client() as session:
        rebuno.run(opens, kernel=kernel)
    [step] = model_calls(kernel)
    assert step.status == "succeeded"


def test_a_stream_that_a_carried_thread_leaves_open_ends_with_the_handler(
    kernel: Kernel, provider: Provider
) -> None:
    """The thread has gone, so nobody else closes it."""
    provider.answer(stream([b"data: 1\n\n", b"data: [DONE]\n\n"]))
    kept = []

    def handler() -> None:
        thread = threading.Thread(
            target=rebuno.carry(
                lambda: kept.append(session.post(provider.url, json=STREAM, stream=True))
            )
        )
        thread.start()
        thread.join()

    with rebuno.http_client() as session:
        rebuno.run(handler, kernel=kernel)
    [step] = model_calls(kernel)
    assert step.status == "succeeded"


def test_a_call_that_outlives_the_handler_and_fails_is_recorded(
    kernel: Kernel, provider: Provider
) -> None:
    """Nobody can ask again for it any more, so its step is not left executing."""
    ends = threading.Event()

    def late(request: Any, handler: Any) -> None:
        ends.wait(60)
        error(503)(request, handler)

    provider.answer(late)

    def handler() -> None:
        threading.Thread(
            target=rebuno.carry(lambda: session.post(provider.url, json=BODY)), daemon=True
        ).start()
        wait_until(lambda: len(provider.requests) == 1, "the call is on its way")
        threading.Timer(0.1, ends.set).start()

    with rebuno.http_client() as session:
        rebuno.run(handler, kernel=kernel)
    [step] = model_calls(kernel)
    assert step.status == "failed"


@pytest.mark.parametrize(
    "body",
    [
        lambda: io.BytesIO(BYTES),
        lambda: bytearray(BYTES),
        lambda: iter([BYTES[:5], BYTES[5:]]),
        lambda: b"\xef\xbb\xbf" + BYTES,
        lambda: json.dumps(BODY).encode("utf-16"),
    ],
    ids=["file", "bytearray", "generator", "with a mark", "utf-16"],
)
def test_json_is_recorded_in_whatever_form_it_is_given(
    kernel: Kernel, provider: Provider, body: Callable[[], Any]
) -> None:
    """It is read for that, and sent whole."""
    provider.answer(plain({"n": 1}))

    def handler() -> str:
        with rebuno.http_client() as session:
            headers = {"Content-Type": "application/json"}
            return session.post(provider.url, data=body(), headers=headers).text

    live, replayed = live_and_replayed(kernel, and_a_step(handler))
    assert live == replayed == '{"n": 1}'
    assert len(provider.requests) == 1
