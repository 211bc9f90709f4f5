"""``rebuno-sync kernel``: a process that serves, is killed, is started again, and stops."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.receiver import Receiver
from support.waiting import wait_until

from rebuno_sync.client import Client
from rebuno_sync.errors import NetworkError, UnauthorizedError
from rebuno_sync.kernel.webhooks import EXTENSIONS
from rebuno_sync.kernel_client import KernelClient
from rebuno_sync.types import LeaseKey, Proposal

from .wire import AGENT, SECRET, TOKEN


class Server:
    """A kernel's process."""

    def __init__(self, folder: Path, *options: str, listen: str = "127.0.0.1:0") -> None:
        self._out = folder / "kernel.out"
        command = [sys.executable, "-W", "error", "-m", "rebuno_sync", "kernel"]
        command += ["--db", str(folder / "kernel.db"), "--listen", listen, *options]
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "REBUNO_BEARER_TOKEN": TOKEN},
            )

    @property
    def said(self) -> str:
        return self._out.read_text()

    @property
    def url(self) -> str:
        def look() -> re.Match[str] | None:
            assert self.process.poll() is None, self.said
            return re.search(r"listens on (\S+)\n.*its file is", self.said, re.DOTALL)

        return wait_until(look, "the kernel's start").group(1)

    @property
    def address(self) -> str:
        return self.url.removeprefix("http://")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Signal it and wait for its end; how long that took."""
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(20)
        return time.monotonic() - began

    def catches(self, number: signal.Signals) -> bool:
        """Whether the process has a handler for it."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        caught = re.search(r"^SigCgt:\s*(\w+)$", status, re.MULTILINE)
        return caught is not None and bool(int(caught.group(1), 16) >> (number - 1) & 1)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    """Those that a test starts are killed after it."""
    started: list[Server] = []
    yield started
    for server in started:
        server.kill()


def test_it_says_where_it_listens_and_which_file_it_has(
    tmp_path: Path, servers: list[Server]
) -> None:
    """Port 0 takes a free one; the token is asked for."""
    servers.append(Server(tmp_path))
    url = servers[0].url
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
    assert str(tmp_path / "kernel.db") in servers[0].said
    with Client(url, TOKEN) as client:
        client.register_agent(AGENT, "", SECRET)
        assert [agent.id for agent in client.agents()] == [AGENT]
    with Client(url, "wrong") as stranger, pytest.raises(UnauthorizedError):
        stranger.agents()
    assert TOKEN not in servers[0].said


def test_it_may_have_as_many_open_files_as_the_system_allows(
    tmp_path: Path, servers: list[Server]
) -> None:
    """Whatever the shell has set: each agent's process keeps some dozens of connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, soft), hard))
    try:
        servers.append(Server(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert servers[0].url
    pid = servers[0].process.pid
    assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (hard, hard)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_c10_an_idle_kernel_stops_within_two_seconds(
    tmp_path: Path, servers: list[Server], number: signal.Signals
) -> None:
    """With status 0, also while agents keep their connections open."""
    servers.append(Server(tmp_path))
    with Client(servers[0].url, TOKEN) as client:
        client.agents()
        assert servers[0].stop(number) < 2
    assert servers[0].process.returncode == 0
    assert "Traceback" not in servers[0].said


def test_c10_a_kernel_with_a_delivery_under_way_stops(
    tmp_path: Path, servers: list[Server]
) -> None:
    """A receiver that hangs does not keep it."""
    servers.append(Server(tmp_path))
    with Receiver() as receiver, Client(servers[0].url, TOKEN) as client:
        receiver.answer = receiver.hang
        client.register_agent(AGENT, receiver.url, SECRET)
        client.create(AGENT)
        receiver.wait_for(1)
        assert servers[0].stop() < 4


def test_c10_a_second_signal_ends_it_at_once(tmp_path: Path, servers: list[Server]) -> None:
    """Whatever is still under way."""
    servers.append(Server(tmp_path))
    with Receiver() as receiver, Client(servers[0].url, TOKEN) as client:
        receiver.answer = receiver.hang
        client.register_agent(AGENT, receiver.url, SECRET)
        client.create(AGENT)
        receiver.wait_for(1)
        servers[0].process.send_signal(signal.SIGTERM)
        # Two signals that are both on their way are one.
        wait_until(lambda: not servers[0].catches(signal.SIGTERM), "the first one's arrival")
        assert servers[0].stop() < 2


def _agent(url: str) -> KernelClient:
    client = KernelClient(url, AGENT, SECRET)
    client.learn_extensions(", ".join(EXTENSIONS))
    return client


def test_c33_a_kernel_that_is_killed_and_started_again_goes_on(
    tmp_path: Path, servers: list[Server]
) -> None:
    """The same attempt goes on with its places; a submit whose answer was lost is recognised."""
    servers.append(Server(tmp_path))
    address = servers[0].address
    with Receiver() as receiver:
        with Client(servers[0].url, TOKEN) as client:
            client.register_agent(AGENT, receiver.url, SECRET)
            execution = client.create(AGENT)
        lease = receiver.wait_for(1)[0].lease
        agent = _agent(servers[0].url)
        proposal = Proposal("tool_call", "t", "1", request_id="0" * 31 + "1")
        first = agent.submit(lease, proposal)
        agent.complete_step(lease, first.step_id, '"one"')
        servers[0].kill()
        with pytest.raises(NetworkError):
            agent.submit(lease, proposal)
        servers.append(Server(tmp_path, listen=address))
        assert servers[1].address == address
        assert agent.submit(lease, proposal) == first
        second = agent.submit(lease, Proposal("tool_call", "t", "1"))
        assert (second.decision, second.step_id != first.step_id) == ("proceed", True)
        agent.complete(lease, "2")
        agent.close()
        with Client(servers[1].url, TOKEN) as client:
            ended = client.get(execution.id)
            assert (ended.status, ended.output) == ("completed", 2)
            attempts = [e for e in client.events(execution.id) if e.type == "dispatch.acked"]
            assert [event.payload["attempt"] for event in attempts] == [1]
        assert len(receiver.received) == 1


def test_two_processes_serve_one_file(tmp_path: Path, servers: list[Server]) -> None:
    """What is created through one is delivered once, and every request may go to either."""
    servers += [Server(tmp_path)]
    servers[0].url  # noqa: B018 - both write to one file of output; the second after the first
    folder = tmp_path / "second"
    folder.mkdir()
    (folder / "kernel.db").symlink_to(tmp_path / "kernel.db")
    servers += [Server(folder)]
    urls = [server.url for server in servers]
    with Receiver() as receiver:
        with Client(urls[0], TOKEN) as client:
            client.register_agent(AGENT, receiver.url, SECRET)
            ids = {client.create(AGENT).id for _ in range(10)}
        with Client(urls[1], TOKEN) as client:
            ids |= {client.create(AGENT).id for _ in range(10)}
        leases: list[LeaseKey] = [webhook.lease for webhook in receiver.wait_for(20)]
        assert {lease.execution_id for lease in leases} == ids
        agents = [_agent(url) for url in urls]
        for lease in leases:
            steps = [agents[n % 2].submit(lease, Proposal("local", "t", "1")) for n in range(4)]
            assert len({step.step_id for step in steps}) == 4
            agents[0].complete(lease, "null")
        for agent in agents:
            agent.close()
        assert len(receiver.received) == 20


def test_options(tmp_path: Path, servers: list[Server]) -> None:
    """The length of leases, the number of attempts and the deadline are the kernel's."""
    servers.append(Server(tmp_path, "--lease-timeout", "7.5", "--max-attempts", "1"))
    with Receiver(lambda _: 500) as receiver, Client(servers[0].url, TOKEN) as client:
        client.register_agent(AGENT, receiver.url, SECRET)
        execution = client.create(AGENT)
        assert receiver.wait_for(1)[0].fields["lease_timeout_seconds"] == 7.5
        wait_until(lambda: client.get(execution.id).status == "failed", "the end")
        assert client.get(execution.id).failure_reason == "dispatch_exhausted"


# -- what it cannot do


def _fails(folder: Path, *options: str, code: str = "", status: int | None = None) -> str:
    command = [sys.executable, "-m", "rebuno_sync"]
    if code:
        command = [sys.executable, "-c", code]
    done = subprocess.run(
        [*command, "kernel", *options], capture_output=True, text=True, timeout=30, cwd=folder
    )
    assert done.returncode in ((1, 2) if status is None else (status,))
    assert "Traceback" not in done.stderr
    return done.stderr


def test_an_address_that_is_taken(tmp_path: Path) -> None:
    """The message names it, and what to do; it is found out before anything is written."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        options = ["--db", "k.db", "--listen", f"127.0.0.1:{port}"]
        said = _fails(tmp_path, *options, status=2)
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in said
    assert "--listen" in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == [], "no file was made"


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "k.db").write_text("no database" * 100)
    said = _fails(tmp_path, "--db", "k.db", "--listen", "127.0.0.1:0")
    assert "k.db" in said
    assert "not an SQLite database" in said


def test_a_server_that_is_not_installed(tmp_path: Path) -> None:
    """The message names the extra."""
    code = (
        "import sys; sys.modules['waitress'] = None\n"
        "from rebuno_sync.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    said = _fails(tmp_path, "--db", "k.db", "--listen", "127.0.0.1:0", code=code)
    assert "rebuno-sync[serve]" in said


@pytest.mark.parametrize(
    "options",
    [
        *(["--listen", "here"], ["--listen", ":99999"], ["--deadline", "x"], ["--deadline", "2e9"]),
        *(["--lease-timeout", "0"], ["--lease-timeout", "nan"], ["--lease-timeout", "1e308"]),
        *(["--token", ""], ["--token", "t "]),
    ],
)
def test_bad_usage(tmp_path: Path, options: list[str]) -> None:
    assert options[0] in _fails(tmp_path, "--db", "k.db", *options)
    assert threading.active_count() >= 1
