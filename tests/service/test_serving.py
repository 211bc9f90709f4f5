"""``Agent.run``: the address, the kernel that is away, and the children of its process."""

from __future__ import annotations

import errno
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests
from support.attempts import background
from support.children import ChildScript
from support.services import SECRET, TOKEN, Service
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel.http import KernelApp
from rebuno_sync.serving import Server

PROGRAMS = Path(__file__).parent / "programs"


def handler() -> str:
    return "done"


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody has."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def free() -> int:
    """A port that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


# -- the address


def test_a_port_that_is_taken_is_named(service: Service, taken: int) -> None:
    """With the cause and what to do, from us and not from within the server; nothing has begun,
    and the agent serves elsewhere."""
    agent = rebuno.Agent("served", secret=SECRET, base_url=service.url)
    before = threading.active_count()
    with pytest.raises(OSError, match=r"cannot listen on 127\.0\.0\.1") as caught:
        agent.run(handler, host="127.0.0.1", port=taken)
    assert caught.value.errno == errno.EADDRINUSE
    assert caught.value.strerror == (
        f"cannot listen on 127.0.0.1:{taken}: Address already in use. If another program has the"
        " port, stop it or choose another one (0 takes a free one)"
    )
    assert caught.value.__suppress_context__
    assert service.wire.count("metadata") == 0
    wait_until(lambda: threading.active_count() == before, "the end of the server's threads")
    with background(lambda: agent.run(handler, host="127.0.0.1", port=0)) as running:
        wait_until(lambda: service.wire.count("metadata"), "the agent's description")
        agent.close()
        running.result()


@pytest.mark.parametrize(("host", "port"), [("no-such-host.invalid", 0), ("127.0.0.1", 70000)])
def test_an_address_that_is_none_is_named(service: Service, host: str, port: int) -> None:
    agent = rebuno.Agent("served", secret=SECRET, base_url=service.url)
    with pytest.raises(OSError, match=f"cannot listen on {host}:{port}: "):
        agent.run(handler, host=host, port=port)
    agent.close()


# -- the kernel


def test_a_kernel_that_is_away_is_told_of_once(
    tmp_path: Path, free: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever agents this process has for it; and once that it is back, with nothing to do."""
    caplog.set_level(logging.INFO, logger="rebuno_sync")
    url = f"http://127.0.0.1:{free}"
    agents = [rebuno.Agent(name, secret=SECRET, base_url=url) for name in ("one", "two")]

    def said(level: int, text: str) -> list[str]:
        records = [record for record in caplog.records if record.levelno == level]
        return [it.getMessage() for it in records if text in it.getMessage()]

    with (
        background(lambda: agents[0].run(handler, host="127.0.0.1", port=0)) as one,
        background(lambda: agents[1].run(handler, host="127.0.0.1", port=0)) as two,
    ):
        wait_until(lambda: len(said(logging.INFO, " takes webhooks at ")) == 2, "both starts")
        for line in said(logging.INFO, " takes webhooks at "):
            assert f", for the kernel at {url}, takes webhooks at http://127.0.0.1:" in line
        wait_until(lambda: said(logging.WARNING, url), "the warning")
        with Kernel(tmp_path / "kernel.db") as kernel:
            for agent in agents:
                kernel.register_agent(agent.agent_id, secret=SECRET)
            server = Server(KernelApp(kernel, TOKEN), "127.0.0.1", free)
            wait_until(lambda: all(it.metadata for it in kernel.agents()), "both descriptions")
            server.close()
            for agent in agents:
                agent.close()
        one.result()
        two.result()
    [warning] = said(logging.WARNING, url)
    assert warning.startswith(f"cannot connect to {url}: ")
    assert "Connection refused" in warning
    assert said(logging.INFO, f"the kernel at {url} is back") == [f"the kernel at {url} is back"]


def test_an_agent_closes_while_its_kernel_is_away(free: int) -> None:
    """It does not wait for it."""
    agent = rebuno.Agent("lonely", secret=SECRET, base_url=f"http://127.0.0.1:{free}")
    with background(lambda: agent.run(handler, host="127.0.0.1", port=0)) as running:
        agent.close()
        running.result(5.0)


# -- connections


def test_idle_connections_of_many_agents_hold_up_nobody(service: Service) -> None:
    """Each process of an agent keeps some dozens; whoever comes after them is served at once."""
    host, port = service.url.removeprefix("http://").split(":")
    with ExitStack() as idle:
        for _ in range(150):
            idle.enter_context(socket.create_connection((host, int(port))))
        with rebuno.Client(service.url, TOKEN, timeout=10) as client:
            assert client.agents() == []


def test_many_webhooks_at_once_are_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A queue is what a server has when it is busy."""
    entered, go_on = threading.Semaphore(0), threading.Event()

    def app(environ: object, start: Callable[..., object]) -> list[bytes]:
        entered.release()
        go_on.wait(20)
        start("200 OK", [("Content-Length", "2")])
        return [b"ok"]

    server = Server(app, "127.0.0.1", 0, threads=2)
    asking = [threading.Thread(target=requests.get, args=(server.url,)) for _ in range(6)]
    for one in asking:
        one.start()
    entered.acquire(timeout=20)
    entered.acquire(timeout=20)
    wait_until(lambda: server._server.task_dispatcher.queue, "a queue")
    go_on.set()
    for one in asking:
        one.join(20)
    server.close()
    assert "queue" not in caplog.text


# -- children


def test_c04_forked_children_of_a_served_handler_end_on_sigterm(tmp_path: Path) -> None:
    """They inherit the agent's signal handler, and are none: ``Process.terminate`` and the end of a
    ``Pool`` work as elsewhere, and the agent stops by its own signal."""
    options = ("-W", "error", "-W", "ignore::DeprecationWarning")  # 3.12 warns of threads at a fork
    with Service(tmp_path) as service:
        script = ChildScript(
            PROGRAMS / "forking_agent.py", tmp_path, options=options, url=service.url
        )
        with script.start(secret=SECRET) as child:
            url = child.says(lambda said: isinstance(said, str), "its address")
            service.client.register_agent("forking", url, SECRET)
            killed = -signal.SIGTERM
            output = service.run(agent_id="forking", timeout=30)
            assert output == [killed, [0, 1, 4, 9], [killed, killed]]
            child.signal(signal.SIGTERM)
            assert child.returncode() == 0, child.errors


def test_c04_a_child_that_is_ended_as_soon_as_it_is_forked_ends(tmp_path: Path) -> None:
    """The signal is not lost between the handler that it inherits and its own beginning."""
    options = ("-W", "error", "-W", "ignore::DeprecationWarning")  # 3.12 warns of threads at a fork
    script = ChildScript(PROGRAMS / "forks_that_are_ended.py", tmp_path, options=options)
    assert script.run() == {str(-signal.SIGTERM): 200}
