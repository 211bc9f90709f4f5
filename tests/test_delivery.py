"""Webhooks on the wire: one POST, one limit, and what is known when it failed."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.receiver import Received, Receiver

from rebuno_sync.delivery import HttpDeliver
from rebuno_sync.errors import NetworkError

HEADERS = [("Content-Type", "application/json"), ("Rebuno-Signature", "sha256=x")]
BODY = b'{"n":1}'


@pytest.fixture
def deliver() -> HttpDeliver:
    return HttpDeliver()


@contextmanager
def _server(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that speaks to each connection as it likes; its URL."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while not ended.is_set():
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    try:
                        talk(connection)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/hook"
        ended.set()
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_it_arrives_as_it_was_given(deliver: HttpDeliver) -> None:
    """Path, query, headers and bytes; the answer's status comes back."""
    with Receiver(lambda _: 202) as receiver:
        assert deliver(receiver.url + "?a=%20b", HEADERS, BODY, 5.0) == 202
        (received,) = receiver.received
    assert received.path == "/webhook?a=%20b"
    assert received.headers["rebuno-signature"] == "sha256=x"
    assert received.body == BODY


def test_each_webhook_has_a_connection_to_itself(deliver: HttpDeliver) -> None:
    """A kept one may be closed at the very moment, and nobody could tell whether it arrived."""
    accepted = []

    def talk(connection: socket.socket) -> None:
        accepted.append(connection)
        for _ in range(5):
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with _server(talk) as url:
        for _ in range(10):
            assert deliver(url, HEADERS, BODY, 5.0) == 200
    assert len(accepted) == 10


def test_a_redirect_that_keeps_the_method_is_followed(deliver: HttpDeliver) -> None:
    """307 and 308, with the body; any other one is the answer."""
    with Receiver() as receiver:
        for status, expected in ((307, 200), (308, 200), (302, 302), (303, 303)):

            def talk(connection: socket.socket, status: int = status) -> None:
                connection.recv(65536)
                connection.sendall(
                    f"HTTP/1.1 {status} X\r\nLocation: {receiver.url}\r\n"
                    "Content-Length: 0\r\n\r\n".encode()
                )

            with _server(talk) as url:
                assert deliver(url, HEADERS, BODY, 5.0) == expected
        assert [webhook.body for webhook in receiver.received] == [BODY, BODY]


def test_redirects_do_not_go_round_for_ever(deliver: HttpDeliver) -> None:
    def talk(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 308 X\r\nLocation: /hook\r\nContent-Length: 0\r\n\r\n")

    with _server(talk) as url:
        assert deliver(url, HEADERS, BODY, 5.0) == 308


def test_nobody_there_is_repeatable(deliver: HttpDeliver) -> None:
    """Nothing was sent."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(NetworkError) as caught:
        deliver(f"http://127.0.0.1:{port}/", HEADERS, BODY, 5.0)
    assert caught.value.repeatable


@pytest.mark.parametrize("said", [b"", b"HTTP/1.", b"nonsense\r\n\r\n", b"\xff\xff\r\n"])
def test_a_lost_answer_is_not_repeatable(deliver: HttpDeliver, said: bytes) -> None:
    """The receiver may have the webhook."""

    def talk(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(said)

    with _server(talk) as url, pytest.raises(NetworkError) as caught:
        deliver(url, HEADERS, BODY, 5.0)
    assert not caught.value.repeatable


@pytest.mark.parametrize("drips", [False, True])
def test_one_limit_for_all(deliver: HttpDeliver, drips: bool) -> None:
    """A receiver that says nothing, or a byte now and then for ever, is given up in time."""
    over = threading.Event()

    def talk(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        while not over.wait(0.05):
            if drips:
                connection.sendall(b"x")

    with _server(talk) as url:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            deliver(url, HEADERS, BODY, 0.4)
        assert 0.3 < time.monotonic() - began < 3
        over.set()


def test_an_endless_answer_is_not_read_to_its_end(deliver: HttpDeliver) -> None:
    """The status counts; the rest is dropped with the connection."""
    over = threading.Event()

    def talk(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not over.is_set():
            connection.sendall(b"x" * 65536)

    with _server(talk) as url:
        assert deliver(url, HEADERS, BODY, 5.0) == 200
        over.set()


@pytest.mark.parametrize(
    "url",
    ["", "nowhere", "ftp://x/", "http://", "http://x/a b", "http://x/\u20ac", "http://x:y/", "//x"],
)
def test_an_address_that_is_none(deliver: HttpDeliver, url: str) -> None:
    """A mistake in a registration is told apart from a receiver that is away."""
    with pytest.raises(ValueError, match=r"host|address|path|port|scheme|base_url|Port"):
        deliver(url, HEADERS, BODY, 5.0)


def test_many_threads_deliver_at_once(deliver: HttpDeliver) -> None:
    """Each on a connection of its own."""
    gate = threading.Barrier(8)

    def answer(_: Received) -> int:
        gate.wait(10)
        return 200

    with Receiver(answer) as receiver:
        threads = [
            threading.Thread(target=deliver, args=(receiver.url, HEADERS, BODY, 10.0))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(receiver.received) == 8
