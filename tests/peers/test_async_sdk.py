"""The published async SDKs against our kernel: agents that complete, die and replay; clients."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.effect_log import EffectLog
from support.kernel_process import Command, KernelProcess, free_port
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync.serving import Server

from .environments import KNOWS_NO_ATTEMPTS, RELEASES, Release

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent.parent
PROGRAMS = Path(__file__).parent / "programs"
AGENT, SECRET = "peer", "the peer's secret"


def peers_environment() -> dict[str, str]:
    """Leads to the log of effects, and to no copy of this project's package."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REBUNO_")}
    return {**kept, "PYTHONPATH": str(TESTS)}


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
        process = Command(command, self._folder, "agent", **peers_environment())
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


def test_an_async_agent_completes(peer: Peer, release: Release) -> None:
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
    published = peer.client.get_agent(AGENT).metadata
    assert (published is not None) == release.publishes_metadata
    if published is not None:
        assert published["input_schema"]["required"] == ["name"]


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


def answers(python: Path, program: str, given: dict[str, object]) -> dict[str, Any]:
    """What a program says that uses the async SDK."""
    done = subprocess.run(
        [python, PROGRAMS / program, json.dumps(given)],
        capture_output=True,
        text=True,
        timeout=60,
        env=peers_environment(),
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_an_async_agent_waits_for_a_person_whom_an_async_client_speaks_for(
    peer: Peer, python: Path, kernel: KernelProcess
) -> None:
    """What came before the block is replayed, and the granted tool runs once."""
    ask = "{decision: require_approval, approval_config: {approvers: [alice], message: Deliver}}"
    rule = f"{{id: ask, when: {{target: deliver}}, then: {ask}}}"
    peer.client.set_policy(AGENT, f"default_action: allow\nrules: [{rule}]")
    peer.start(idempotency="at_most_once")
    execution = peer.client.create(AGENT, {"name": "ada"})
    [approval] = wait_until(peer.client.list_approvals, "the agent asking")
    assert peer.client.get(execution.id).status == "blocked"
    said = answers(python, "async_approver.py", {"url": kernel.url, "token": kernel.TOKEN})
    assert said == {
        "id": approval.id,
        "same": True,
        "message": "Deliver",
        "left": [],
        "again": 409,
    }
    peer.client.wait(execution.id, timeout=30)
    assert peer.ran() == {"look_up": 1, "choose": 1, "deliver": 1}
    decided = peer.client.get_approval(approval.id)
    assert (decided.status, decided.decided_by, decided.rationale) == ("granted", "alice", "fine")


def test_an_async_client(peer: Peer, python: Path, kernel: KernelProcess, release: Release) -> None:
    """It creates, reads, lists and cancels, and maps the kernel's refusals."""
    peer.start()
    peer.client.register_agent("idle", "", SECRET)
    given = {
        "url": kernel.url,
        "token": kernel.TOKEN,
        "agent": AGENT,
        "idle_agent": "idle",
        "has_keys": release.has_keys,
    }
    said = answers(python, "async_client.py", given)
    execution_id = said["created"][0]
    assert said["created"] == [execution_id, AGENT, "running"]
    output = peer.client.get(execution_id).output
    assert said["ended"] == [execution_id, "completed", output]
    events = [event.type for event in peer.client.events(execution_id)]
    assert said["events"] == events[: len(said["events"])]
    assert said["later"] == events[2:4]
    assert "execution.completed" in said["events"]
    assert said["steps"] == [
        ["choose", "succeeded"],
        ["deliver", "succeeded"],
        ["look_up", "succeeded"],
    ]
    assert said["step"] == [True, True]
    assert said["terminal"] == 3
    assert (said["open steps"], said["cancelled"]) == ([], "cancelled")
    assert said.get("keyed") == (1 if release.has_keys else None)
    assert (said["again"], said["missing"], said["stranger"]) == (409, 404, 401)


OLDEST = pytest.mark.parametrize("release", [RELEASES[-1]], ids=str)
"""It signs its body alone, which can be replayed by whoever captures a request."""


@OLDEST
def test_the_body_form_of_an_agent_that_is_not_registered_for_it(
    peer: Peer, kernel: KernelProcess
) -> None:
    """It is refused, nothing runs, and the kernel's log says what to do."""
    peer.register(None)
    peer.start()
    peer.client.create(AGENT, {"name": "ada"})
    kernel.says("--accept-body-signatures")
    assert peer.ran() == {}


@OLDEST
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
