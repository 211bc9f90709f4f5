"""``Server``: how it stops, and what it does not let in."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import pytest
import requests
from support.attempts import background
from support.kernel_process import accepts
from support.services import TOKEN, Service
from support.waiting import wait_until

from rebuno_sync.serving import Server

MIB = 2**20


class Slow:
    """An application whose answer waits until it is let go."""

    def __init__(self) -> None:
        self.asked, self.go = threading.Event(), threading.Event()

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        self.asked.set()
        self.go.wait(20)
        start("200 OK", [("Content-Length", "4")])
        return [b"done"]


@pytest.fixture
def slow() -> Iterator[Slow]:
    slow = Slow()
    yield slow
    slow.go.set()


def test_what_is_being_asked_is_answered_before_it_stops(slow: Slow) -> None:
    """Nobody new gets in meanwhile."""
    server = Server(slow, "127.0.0.1", 0)
    with background(lambda: requests.get(server.url, timeout=20).text) as asking:
        assert slow.asked.wait(20)
        with background(lambda: server.close(grace=20)):
            wait_until(lambda: not accepts(server.port), "the server refusing")
            slow.go.set()
        assert asking.result() == "done"


def test_after_its_grace_it_stops_all_the_same(slow: Slow) -> None:
    """A request that is not answered then is cut off."""
    server = Server(slow, "127.0.0.1", 0)
    with background(lambda: requests.get(server.url, timeout=20).text) as asking:
        assert slow.asked.wait(20)
        server.close(grace=0.1)
        with pytest.raises(requests.ConnectionError):
            asking.result()
        slow.go.set()


def test_idle_connections_do_not_keep_it(slow: Slow) -> None:
    """Those without a request are closed at once, whatever the grace is."""
    slow.go.set()
    server = Server(slow, "127.0.0.1", 0)
    with requests.Session() as session:
        assert session.get(server.url, timeout=20).text == "done"
        with background(lambda: server.close(grace=600)):
            pass


def test_it_may_be_closed_twice(slow: Slow) -> None:
    server = Server(slow, "127.0.0.1", 0)
    server.close()
    server.close()


@pytest.mark.parametrize(
    ("headers", "size", "status"),
    [
        ({"Authorization": f"Bearer {TOKEN}"}, 10 * MIB + 1, 400),
        ({"Rebuno-Agent-Id": "a", "Rebuno-Signature": "v1=x"}, 10 * MIB + 1, 401),
        ({"Authorization": f"Bearer {TOKEN}"}, 200 * MIB, 413),
    ],
)
def test_bodies_that_are_too_large(
    service: Service, headers: dict[str, str], size: int, status: int
) -> None:
    """Above 10 MiB as the protocol says (1.1); what is far above is not even read."""
    path = "/v0/leases" if status == 401 else "/v0/executions"
    host, _, port = service.url.removeprefix("http://").partition(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=20)) as connection:
        connection.putrequest("POST", path)
        for name, value in {**headers, "Content-Length": str(size)}.items():
            connection.putheader(name, value)
        connection.endheaders()
        if status != 413:
            for _ in range(size // MIB):
                connection.send(b" " * MIB)
            connection.send(b" " * (size % MIB))
        assert connection.getresponse().status == status
    assert service.client.agents() == []
