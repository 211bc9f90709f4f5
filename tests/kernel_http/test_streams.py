"""Live streams: deltas in, Server-Sent Events out, and a kernel that none of them holds up
(protocol.md 8.4)."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Event

import pytest
from support.attempts import background
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync import APIError, ConflictError, NetworkError, NotFoundError
from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel.http import KernelApp
from rebuno_sync.kernel.http.event_stream import EventStream
from rebuno_sync.kernel.store import ring
from rebuno_sync.serving import Server
from rebuno_sync.types import Delta, LeaseKey, Proposal

from .moves import Inbox, path_of, start, submit
from .wire import OTHER, TOKEN, Answer, Wire

NOBODY = "00000000-0000-7000-8000-000000000007"
THREADS = 2


@pytest.fixture
def server(kernel: Kernel) -> Iterator[Server]:
    """The kernel behind a server with two threads."""
    server = Server(KernelApp(kernel, TOKEN), "127.0.0.1", 0, threads=THREADS)
    yield server
    server.close()


@pytest.fixture
def client(server: Server) -> Iterator[rebuno.Client]:
    with rebuno.Client(server.url, TOKEN) as client:
        yield client


@pytest.fixture
def lease(kernel: Kernel, inbox: Inbox) -> LeaseKey:
    return start(kernel, inbox)


@pytest.fixture
def step_id(wire: Wire, lease: LeaseKey) -> str:
    """A step that is executing."""
    return str(submit(wire, lease).json["step_id"])


def publish(
    wire: Wire, lease: LeaseKey, step_id: str, seq: int = 0, data: str = "x", **more: str
) -> Answer:
    target = path_of(lease, f"/steps/{step_id}/stream")
    return wire.act("POST", target, {"seq": seq, "data": data}, lease, **more)  # type: ignore[arg-type]


@contextmanager
def open_stream(server: Server, execution_id: str) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=20)
    path = f"/v0/executions/{execution_id}/stream"
    connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
    with closing(connection), connection.getresponse() as reply:
        yield reply


# -- from an agent to a listener


def test_a_listener_gets_what_is_published(
    wire: Wire, client: rebuno.Client, lease: LeaseKey, step_id: str
) -> None:
    """Every piece, in order, with its step; nothing from before it listened."""
    assert publish(wire, lease, step_id, 0, "before").status == 204
    stream = client.stream(lease.execution_id)
    sent = [Delta(step_id, seq, f"piece {seq}\n\u00e9\u2028") for seq in range(1, 40)]
    for delta in sent:
        assert publish(wire, lease, *delta).status == 204
    assert [next(stream) for _ in sent] == sent


def test_a_stream_that_another_thread_waits_for_is_closed_at_once(
    wire: Wire, client: rebuno.Client, lease: LeaseKey, step_id: str
) -> None:
    """Whoever iterates over it is done, without an error."""
    stream, got = client.stream(lease.execution_id), Event()

    def listen() -> list[str]:
        data = []
        for delta in stream:
            data.append(delta.data)
            got.set()
        return data

    with background(listen) as listening:
        publish(wire, lease, step_id)
        assert got.wait(20)
        closed_at = time.monotonic()
        stream.close()
        assert listening.result() == ["x"]
        assert time.monotonic() - closed_at < 5


def test_a_frame_is_one_line_of_json(
    wire: Wire, server: Server, lease: LeaseKey, step_id: str
) -> None:
    """The head comes at once; each delta is a frame of its own, without a name or an id."""
    frame = f'data: {{"step_id":"{step_id}","seq":7,"data":"a\\nb"}}\n\n'.encode()
    with open_stream(server, lease.execution_id) as reply:
        assert (reply.status, reply.headers["Content-Type"]) == (200, "text/event-stream")
        assert reply.headers["Cache-Control"] == "no-cache"
        publish(wire, lease, step_id, 7, "a\nb")
        assert reply.read(len(frame)) == frame


def test_all_listeners_of_an_execution_and_no_others(
    wire: Wire, kernel: Kernel, client: rebuno.Client, lease: LeaseKey, step_id: str
) -> None:
    other = kernel.core.deltas.listen(kernel.create("agent").id)
    streams = [client.stream(lease.execution_id) for _ in range(3)]
    publish(wire, lease, step_id, 0, "to you")
    assert [next(stream).data for stream in streams] == ["to you"] * 3
    assert other.take() == []


def test_a_listener_of_another_process(
    wire: Wire, path: Path, clock: ManualClock, lease: LeaseKey, step_id: str
) -> None:
    """It gets the piece from the file, whichever kernel the agent speaks to."""
    with Kernel(path, clock=clock) as elsewhere:
        listener = elsewhere.core.deltas.listen(lease.execution_id)
        for seq in range(3):
            publish(wire, lease, step_id, seq)
        got: list[Delta] = []

        def all_came() -> bool:
            got.extend(listener.take())
            return len(got) == 3

        wait_until(all_came, "the pieces arriving")
        assert [delta.seq for delta in got] == [0, 1, 2]


def test_the_file_does_not_grow(
    wire: Wire, kernel: Kernel, path: Path, clock: ManualClock, lease: LeaseKey, step_id: str
) -> None:
    """Without a listener elsewhere nothing is written; with one, a few hundred rows at most. The
    log of the execution has none of it."""

    def rows() -> int:
        return kernel.core.store().read(
            lambda db: int(db.execute("SELECT count(*) FROM deltas").fetchone()[0])
        )

    events = len(kernel.events(lease.execution_id))
    kernel.core.deltas.listen(lease.execution_id)
    publish(wire, lease, step_id)
    assert rows() == 0
    with Kernel(path, clock=clock) as elsewhere:
        elsewhere.core.deltas.listen(lease.execution_id)
        for seq in range(ring.MOST_ROWS + 20):
            publish(wire, lease, step_id, seq)
    assert rows() == ring.MOST_ROWS
    assert len(kernel.events(lease.execution_id)) == events
    clock.advance(61)  # The other one is gone.
    publish(wire, lease, step_id)
    assert rows() == ring.MOST_ROWS


def test_a_handler_of_this_process_publishes_too(kernel: Kernel) -> None:
    """Under its own lease; one that is over publishes nothing."""
    kernel.register_agent("here")
    claim = kernel.claim(kernel.create("here").id)
    assert claim is not None
    step_id = kernel.agent.submit(claim.lease, Proposal("llm_call", "m", "{}")).step_id
    listener = kernel.core.deltas.listen(claim.lease.execution_id)
    kernel.agent.delta(claim.lease, step_id, 0, "word")
    assert listener.take() == [Delta(step_id, 0, "word")]
    kernel.agent.complete_step(claim.lease, step_id, "1")
    with pytest.raises(ConflictError):
        kernel.agent.delta(claim.lease, step_id, 1, "late")
    late = claim.lease._replace(attempt=9)
    with pytest.raises(ConflictError, match="superseded"):
        kernel.agent.delta(late, step_id, 1, "late")


# -- what is refused


def test_a_delta_that_is_refused(wire: Wire, lease: LeaseKey, step_id: str) -> None:
    """Not found before forbidden, the lease before the step's status; a long one is bad."""
    assert publish(wire, lease._replace(execution_id=NOBODY), step_id).status == 404
    assert publish(wire, lease, "0" * 64, agent=OTHER).status == 404
    assert publish(wire, lease, step_id, agent=OTHER).status == 403
    superseded = publish(wire, lease._replace(attempt=2), step_id)
    assert (superseded.status, superseded.code) == (409, "lease_superseded")
    assert publish(wire, lease, step_id, data="\u00e9" * 3500).status == 204
    assert publish(wire, lease, step_id, data="\u00e9" * 3500 + "x").status == 400
    wire.act("POST", path_of(lease, f"/steps/{step_id}/complete"), {"result": 1}, lease)
    settled = publish(wire, lease, step_id)
    assert (settled.status, settled.code) == (409, "conflict")


def test_an_execution_that_is_unknown(client: rebuno.Client) -> None:
    with pytest.raises(NotFoundError):
        client.stream(NOBODY)


def test_streams_beyond_the_limit_are_refused(
    kernel: Kernel, client: rebuno.Client, lease: LeaseKey
) -> None:
    """503 and why; there is room again when one is closed."""
    kernel.core.deltas.most_streams = 2
    first, second = (client.stream(lease.execution_id) for _ in range(2))
    wait_until(lambda: kernel.core.deltas.streams == 2, "two streams being open")
    with pytest.raises(NetworkError, match="2 event streams open"):
        client.stream(lease.execution_id)
    first.close()
    with ExitStack() as stack:
        wait_until(lambda: _opens(client, lease, stack), "room for another")
    second.close()


def _opens(client: rebuno.Client, lease: LeaseKey, stack: ExitStack) -> bool:
    try:
        stack.callback(client.stream(lease.execution_id).close)
    except (NetworkError, APIError):
        return False
    return True


# -- listeners that do not listen


def test_what_is_not_taken_in_time_is_dropped(kernel: Kernel, lease: LeaseKey) -> None:
    """64 wait, the newest beyond them are lost: the gap shows in ``seq``."""
    listener = kernel.core.deltas.listen(lease.execution_id)
    for seq in range(100):
        listener.put(Delta("s", seq, ""))
    assert [delta.seq for delta in listener.take()] == list(range(64))
    listener.put(Delta("s", 100, ""))
    assert [delta.seq for delta in listener.take()] == [100]


def test_open_streams_take_no_thread(
    client: rebuno.Client, kernel: Kernel, lease: LeaseKey
) -> None:
    """Twenty of them, and a server of two threads answers at once."""
    streams = [client.stream(lease.execution_id) for _ in range(20)]
    assert kernel.core.deltas.streams == 20
    assert client.get(lease.execution_id).status == "running"
    assert len(streams) == 20


def test_a_client_that_does_not_read_holds_up_nobody(
    wire: Wire, server: Server, client: rebuno.Client, lease: LeaseKey, step_id: str
) -> None:
    """Megabytes are published past it; the others get theirs, and it may still go on later."""
    with open_stream(server, lease.execution_id) as deaf:
        stream = client.stream(lease.execution_id)
        for seq in range(1500):
            publish(wire, lease, step_id, seq, "x" * 7000)
            assert next(stream).seq == seq
        assert client.get(lease.execution_id).status == "running"
        assert deaf.readline().startswith(b'data: {"step_id"')


def test_half_sent_requests_hold_up_nobody(server: Server, client: rebuno.Client) -> None:
    """A hundred and fifty connections that never finish their request."""
    with ExitStack() as stack:
        for _ in range(150):
            slow = stack.enter_context(socket.create_connection((server.host, server.port)))
            slow.sendall(b"POST /v0/executions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        assert client.agents()


def test_answers_that_nobody_reads_hold_up_nobody(
    wire: Wire, server: Server, client: rebuno.Client, lease: LeaseKey, step_id: str
) -> None:
    """More large ones than the server has threads."""
    result = {"result": "x" * 6_000_000}
    assert (
        wire.act("POST", path_of(lease, f"/steps/{step_id}/complete"), result, lease).status == 200
    )
    ask = f"GET {path_of(lease, '/steps')} HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    with ExitStack() as stack:
        for _ in range(2 * THREADS):
            deaf = stack.enter_context(socket.create_connection((server.host, server.port)))
            deaf.sendall(ask.encode())
            assert deaf.recv(15) == b"HTTP/1.1 200 OK"
        assert client.get(lease.execution_id).status == "running"


def test_a_client_that_goes_is_noticed(server: Server, kernel: Kernel, lease: LeaseKey) -> None:
    with open_stream(server, lease.execution_id):
        assert kernel.core.deltas.streams == 1
    wait_until(lambda: kernel.core.deltas.streams == 0, "the listener leaving")


def test_closing_the_kernel_ends_its_streams(
    server: Server, kernel: Kernel, lease: LeaseKey
) -> None:
    """In order: the client reads an end, not a broken line."""
    read: list[bytes] = []
    with (
        open_stream(server, lease.execution_id) as reply,
        background(lambda: read.append(reply.read())),
    ):
        kernel.close()
    assert read == [b""]


# -- other servers


def test_in_another_server_a_stream_is_an_ordinary_response(
    kernel: Kernel, lease: LeaseKey
) -> None:
    """It is iterated, begins with a comment, and ends with the kernel."""
    stream = EventStream(kernel.core.deltas.listen(lease.execution_id))
    body = iter(stream)
    assert next(body) == b": keep-alive\n\n"
    kernel.core.deltas._hand_out(lease.execution_id, Delta("s", 0, "d"))
    assert next(body) == b'data: {"step_id":"s","seq":0,"data":"d"}\n\n'
    assert EventStream.idle_seconds == 15.0
    kernel.core.deltas.close()
    assert b"".join(body) == b""
    stream.close()
