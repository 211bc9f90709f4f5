"""The newest async SDK against our kernel: subagents, sessions and previous states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.effect_log import EffectLog
from support.kernel_process import Command, KernelProcess, free_port

import rebuno_sync as rebuno
from rebuno_sync.serving import Server

from .environments import RELEASES, Environments
from .test_async_sdk import PROGRAMS, SECRET, peers_environment

pytestmark = pytest.mark.slow


def test_an_async_parent_has_a_subagent_of_ours(
    environments: Environments, kernel: KernelProcess, tmp_path: Path
) -> None:
    """It suspends and goes on with the answer; its state is there for the next of its session."""
    port, log = free_port(), EffectLog(tmp_path / "effects")
    given = {
        "agent": "parent",
        "child": "child",
        "secret": SECRET,
        "url": kernel.url,
        "token": kernel.TOKEN,
        "port": port,
        "log": str(log.path),
    }
    program = PROGRAMS / "async_parent.py"
    command = [environments.python(RELEASES[0]), program, json.dumps(given)]
    child = rebuno.Agent("child", secret=SECRET, base_url=kernel.url)

    @child.bind
    def answer(question: str) -> dict[str, str]:
        return {"answer": question.upper()}

    server = Server(child.app, "127.0.0.1", 0)
    process = Command(command, tmp_path, "parent", **peers_environment())
    try:
        process.listens(port)
        with kernel.client() as client:
            client.register_agent("parent", f"http://127.0.0.1:{port}/webhook", SECRET)
            client.register_agent("child", server.url + child.webhook_path, SECRET)
            turns = [
                client.create("parent", {"question": it}, session="talk") for it in ("why", "how")
            ]
            outputs = [client.wait(turn.id, timeout=30).output for turn in turns]
            assert outputs == [
                {"before": None, "found": {"answer": "WHY"}},
                {"before": ["why"], "found": {"answer": "HOW"}},
            ]
            kinds = [event.type for event in client.events(turns[0].id)]
            assert "execution.resumed" in kinds
            assert len(client.list(agent_id="child").executions) == 2
    finally:
        process.kill()
        child.close()
        server.close()
