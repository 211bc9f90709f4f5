"""The published async SDKs against our kernel: agents that complete, die and replay."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.effect_log import EffectLog
from support.kernel_process import Command, KernelProcess, free_port
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync.serving import Server

from .environments import KNOWS_NO_ATTEMPTS, OLDEST, PROGRAMS, Release, variables
from .features import shows
from .sites import AGENT, SECRET

pytestmark = pytest.mark.slow


class Peer:
    """An agent of the async SDK on a port of its own, registered; started and killed at will."""

    def __init__(self, python: Path, kernel: KernelProcess, folder: Path, release: Release) -> None:
        self._python = python
        self._kernel = kernel
        self._folder = folder
        self._port = free_port()
        self.log = EffectLog(folder / "effects")
        self.client = kernel.client()
        self.processes: list[Command] = []
        self.register("body" if release.signature == "body" else None)

    def register(self, signature: str | None) -> None:
        webhook = f"http://127.0.0.1:{self._port}/webhook"
        self.client.register_agent(AGENT, webhook, SECRET, signature=signature)

    def start(self, *, hold: bool = False, idempotency: str = "safe_to_retry") -> Command:
        """``hold``: the second tool never returns."""
        given = {
            "agent": AGENT,
            "secret": SECRET,
            "url": self._kernel.url,
            "port": self._port,
            "hold": hold,
            "idempotency": idempotency,
            "log": str(self.log.path),
        }
        command = [self._python, PROGRAMS / "async_agent.py", json.dumps(given)]
        process = Command(command, self._folder, "agent", **variables())
        self.processes.append(process)
        return process.listens(self._port)

    def ran(self) -> dict[str, int]:
        """How often the body of each effect has run."""
        return dict(Counter(line.label for line in self.log.lines()))

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        self.client.close()


@pytest.fixture
def peer(python: Path, kernel: KernelProcess, tmp_path: Path, release: Release) -> Iterator[Peer]:
    peer = Peer(python, kernel, tmp_path, release)
    yield peer
    peer.close()


@shows("agents", "tools and steps")
def test_an_async_agent_completes(peer: Peer) -> None:
    """Its two tools run once each, and their steps are recorded."""
    peer.start()
    execution = peer.client.create(AGENT, {"name": "ada"})
    output = peer.client.wait(execution.id, timeout=30).output
    [found], [delivered] = peer.log.of("look_up"), peer.log.of("deliver")
    assert output == {
        "found": {"name": "ada", "token": found.token, "limit": 3},
        "chosen": "drei",
        "delivered": f"ada drei {delivered.token}",
    }
    steps = {step.target: step for step in peer.client.list_steps(execution.id)}
    assert {target: str(step.status) for target, step in steps.items()} == {
        "look_up": "succeeded",
        "choose": "succeeded",
        "deliver": "succeeded",
    }
    assert steps["look_up"].args == {"name": "ada", "limit": 3}


def cut_down(peer: Peer, idempotency: str = "safe_to_retry") -> str:
    """Kill the agent in the middle of its second tool; the execution."""
    process = peer.start(hold=True, idempotency=idempotency)
    execution_id = peer.client.create(AGENT, {"name": "ada"}).id
    wait_until(lambda: peer.log.of("deliver"), "the second tool")
    process.kill()
    assert peer.ran() == {"look_up": 1, "choose": 1, "deliver": 1}
    return execution_id


def test_an_async_agent_that_was_killed_replays(peer: Peer) -> None:
    """What was recorded does not run again; the tool that was cut down does."""
    execution_id = cut_down(peer)
    peer.start()
    output = peer.client.wait(execution_id, timeout=60).output
    assert peer.ran() == {"look_up": 1, "choose": 1, "deliver": 2}
    assert output["found"]["token"] == peer.log.of("look_up")[0].token
    assert output["delivered"] == f"ada drei {peer.log.of('deliver')[1].token}"


def test_an_async_agents_at_most_once_tool_does_not_run_twice(peer: Peer) -> None:
    """One that was cut down is answered as indeterminate."""
    execution_id = cut_down(peer, "at_most_once")
    peer.start(idempotency="at_most_once")
    output = peer.client.wait(execution_id, timeout=60).output
    assert peer.ran() == {"look_up": 1, "choose": 1, "deliver": 1}
    assert output["delivered"].startswith("unknown: ")


@pytest.mark.parametrize("release", [KNOWS_NO_ATTEMPTS], ids=str, indirect=True)
def test_an_agent_that_knows_no_attempts_is_served(peer: Peer) -> None:
    """It replays what was recorded, is told of what is unknown, and completes."""
    execution_id = cut_down(peer, "at_most_once")
    peer.start(idempotency="at_most_once")
    output = peer.client.wait(execution_id, timeout=60).output
    assert peer.ran() == {"look_up": 1, "choose": 1, "deliver": 1}
    assert output["found"]["token"] == peer.log.of("look_up")[0].token
    assert output["delivered"].startswith("unknown: ")


def test_what_an_async_agent_began_is_resumed_by_ours(peer: Peer, kernel: KernelProcess) -> None:
    """The same handler, written blocking, meets every recorded step under the same id."""
    execution_id = cut_down(peer)

    @rebuno.tool
    def look_up(name: str, limit: int = 3) -> dict[str, object]:
        return {"name": name, "token": peer.log.append("look_up"), "limit": limit}

    @rebuno.tool
    def deliver(text: str) -> str:
        return f"{text} {peer.log.append('deliver')}"

    def choose(among: list[object]) -> object:
        peer.log.append("choose")
        return among[-1]

    def handler(name: str) -> dict[str, object]:
        found = look_up(name)
        chosen = rebuno.step("choose", choose, {"among": [1, 2.5, "drei"]})
        return {"found": found, "chosen": chosen, "delivered": deliver(f"{name} {chosen}")}

    agent = rebuno.Agent(AGENT, secret=SECRET, base_url=kernel.url)
    agent.bind(handler)
    server = Server(agent.app, "127.0.0.1", 0)
    try:
        peer.client.register_agent(AGENT, server.url + "/webhook", SECRET)
        output = peer.client.wait(execution_id, timeout=60).output
    finally:
        agent.close()
        server.close()
    assert peer.ran() == {"look_up": 1, "choose": 1, "deliver": 2}
    assert output["found"]["token"] == peer.log.of("look_up")[0].token
    assert len(peer.client.list_steps(execution_id)) == 3


BODY_FORM = pytest.mark.parametrize("release", [OLDEST], ids=str, indirect=True)
"""It signs its body alone, which can be replayed by whoever captures a request."""


@BODY_FORM
def test_the_body_form_of_an_agent_that_is_not_registered_for_it(
    peer: Peer, kernel: KernelProcess
) -> None:
    """It is refused, nothing runs, and the kernel's log says what to do."""
    peer.register(None)
    peer.start()
    peer.client.create(AGENT, {"name": "ada"})
    kernel.says("--accept-body-signatures")
    assert peer.ran() == {}


@BODY_FORM
def test_the_body_form_under_the_option_of_the_kernel(
    python: Path, tmp_path: Path, release: Release
) -> None:
    """``--accept-body-signatures`` takes it from every agent."""
    with KernelProcess(tmp_path, "--accept-body-signatures") as kernel:
        peer = Peer(python, kernel, tmp_path, release)
        peer.register(None)
        peer.start()
        assert peer.client.run(AGENT, {"name": "ada"}, timeout=30)["chosen"] == "drei"
        peer.close()
