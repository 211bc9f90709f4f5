"""Pieces of a stream are published while it arrives, and hold nobody up."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from support.attempts import attempt, created
from support.deciding_port import DecidingPort
from support.provider_server import Provider, stream
from support.waiting import wait_until

from rebuno_sync.errors import APIError
from rebuno_sync.kernel import Kernel

from .clients import STREAMS


def read(kernel: Kernel, provider: Provider, port: DecidingPort, name: str = "httpx2") -> bytes:
    """The stream as a handler gets it that speaks with its kernel through ``port``."""
    got: list[bytes] = []

    def handler(**_: Any) -> None:
        got.extend(STREAMS[name](provider.url))

    assert attempt(kernel, created(kernel), handler, port=port).status == "completed"
    return b"".join(got)


@pytest.mark.parametrize("name", STREAMS)
def test_what_is_published_is_what_arrives(kernel: Kernel, provider: Provider, name: str) -> None:
    """In order, numbered from 0, in pieces of at most 1,750 characters; also where a chunk ends
    within a character."""
    text = "data: 𝄞 über\n\n" * 700
    sent = text.encode()
    provider.answer(stream([sent[i : i + 999] for i in range(0, len(sent), 999)]))
    port = DecidingPort(kernel.agent)
    assert read(kernel, provider, port, name) == sent
    assert "".join(data for _, _, data in port.deltas) == text
    assert [seq for _, seq, _ in port.deltas] == list(range(len(port.deltas)))
    assert max(len(data) for _, _, data in port.deltas) <= 1750
    assert len({step_id for step_id, _, _ in port.deltas}) == 1


def test_the_first_piece_is_published_before_the_last_has_arrived(
    kernel: Kernel, provider: Provider
) -> None:
    """While the provider pauses."""
    port = DecidingPort(kernel.agent)
    published = threading.Event()
    port.on_delta = published.set
    chunks = [b"data: " + b"x" * 3000 + b"\n\n", b"data: 2\n\n"]
    provider.answer(stream(chunks, before=lambda n: n and published.wait(20)))
    read(kernel, provider, port)
    assert published.is_set()


def test_a_kernel_that_is_slow_or_refuses_holds_up_no_reader(
    kernel: Kernel, provider: Provider
) -> None:
    """Pieces are dropped; the stream is whole, and recorded whole."""
    port = DecidingPort(kernel.agent)
    stuck = threading.Event()

    def hang() -> None:
        stuck.wait(20)
        raise APIError("no")

    port.on_delta = hang
    sent = b"data: " + b"x" * 500_000 + b"\n\n"
    provider.answer(stream([sent]))
    assert read(kernel, provider, port) == sent
    stuck.set()
    assert port.deltas == []
    [step] = kernel.list_steps(kernel.list().executions[0].id)
    assert step.result["body"].encode() == sent


def test_nothing_is_published_where_nobody_can_listen(kernel: Kernel, provider: Provider) -> None:
    """A kernel that takes no deltas is spared them; that of this process takes them."""
    assert kernel.agent.takes_deltas
    port = DecidingPort(kernel.agent)
    port.takes_deltas = False
    read(kernel, provider, port)
    wait_until(lambda: port.deltas == [], "silence")
