"""A cancel ends a call that is under way, whatever library waits for the provider."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.attempts import attempt, background, created
from support.provider_server import Provider, held, plain, stream
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync import heartbeat
from rebuno_sync.kernel import Kernel

from .clients import MESSAGES, POSTS, STREAMS, claude, gpt

_HELD_SECONDS = 15.0


def _sdk_calls(provider: Provider) -> dict[str, Callable[[], Any]]:
    return {
        "openai": lambda: gpt(provider).chat.completions.create(model="m", messages=MESSAGES),
        "anthropic": lambda: claude(provider).messages.create(
            model="m", max_tokens=9, messages=MESSAGES
        ),
    }


def seconds_to_end(
    kernel: Kernel, is_waiting: Callable[[], object], call: Callable[[], Any]
) -> float:
    """How long a handler takes to end that is in ``call`` when its execution is cancelled."""
    execution_id = created(kernel)
    leases: list[heartbeat.Lease] = []

    def handler(**_: Any) -> Any:
        leases.append(rebuno.execution()._lease)
        return call()

    with background(lambda: attempt(kernel, execution_id, handler)) as running:
        wait_until(is_waiting, "the call")
        kernel.cancel(execution_id)
        began = time.monotonic()
        # What the next heartbeat would do.
        assert not heartbeat.RENEWER.beat(leases[0], kernel.agent)
        outcome = running.result()
        took = time.monotonic() - began
    assert outcome.status in ("terminated", "lease_superseded")
    [step] = kernel.list_steps(execution_id)
    assert step.status == "cancelled"
    return took


@pytest.mark.parametrize("name", POSTS)
def test_c7_a_cancel_ends_a_call_that_is_never_answered(
    kernel: Kernel, provider: Provider, name: str
) -> None:
    """Within a second, and it is not asked again."""
    release = threading.Event()
    provider.answer(held(release, plain({}), _HELD_SECONDS))
    took = seconds_to_end(kernel, lambda: provider.requests, lambda: POSTS[name](provider.url))
    release.set()
    assert took < 1.0
    assert len(provider.requests) == 1


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_c7_a_cancel_passes_through_a_providers_sdk(
    kernel: Kernel, provider: Provider, name: str
) -> None:
    """It is no error that the SDK would retry."""
    release = threading.Event()
    provider.answer(held(release, plain({}), _HELD_SECONDS))
    took = seconds_to_end(kernel, lambda: provider.requests, _sdk_calls(provider)[name])
    release.set()
    assert took < 1.0
    assert len(provider.requests) == 1


@pytest.mark.parametrize("name", STREAMS)
def test_c10_a_cancel_ends_a_stream_that_pauses(
    kernel: Kernel, provider: Provider, name: str
) -> None:
    """The reader waits for the second chunk."""
    release = threading.Event()
    read = threading.Event()
    provider.answer(
        stream([b"data: 1\n\n", b"data: 2\n\n"], before=lambda n: n and release.wait(_HELD_SECONDS))
    )

    def call() -> None:
        for _ in STREAMS[name](provider.url):
            read.set()

    took = seconds_to_end(kernel, read.is_set, call)
    release.set()
    assert took < 1.0


def test_a_call_that_has_ended_is_not_cancelled(kernel: Kernel, provider: Provider) -> None:
    """Nothing is kept of it: a long run does not gather what it would have to stop."""

    def handler() -> int:
        kept = rebuno.execution()._lease._callbacks
        before = len(kept)
        for n in range(3):
            with rebuno.http_client() as session:
                session.post(provider.url, json={"model": "m", "n": n})
        return len(kept) - before

    assert rebuno.run(handler, kernel=kernel) == 0
