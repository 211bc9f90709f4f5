"""Resources of agents elsewhere, whose processes are killed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from support.effect_log import EffectLog
from support.histories import check_history
from support.waiting import wait_until

from rebuno_sync.kernel import Kernel

from .processes import AgentProcess, KernelProcess

AGENT = "folders"


@pytest.mark.slow
def test_a_resource_outlives_the_processes_that_work_in_it(tmp_path: Path) -> None:
    """Agent and kernel are killed after a capture, before the end: the next attempt finds the
    folder and repeats nothing. The session's next execution works on in it; a fork begins with the
    captured copy."""
    home = tmp_path / "home"
    home.mkdir()
    log = EffectLog(home / "log")
    kernel = KernelProcess(tmp_path, "--lease-timeout", "1")
    client = kernel.client
    agent = AgentProcess("folder_served.py", tmp_path, AGENT, kernel=kernel.url, home=home)
    with kernel, agent:
        agent.register(kernel)
        first = client.create(AGENT, {"name": "a"}, session="s")
        agent.running.hears({"holds": first.id})
        wait_until(lambda: client.fork_points(first.id).checkpoints, "the capture")
        at = client.fork_points(first.id).latest_seq
        for process in (kernel, agent):
            process.kill()
        (home / "go-a").touch()
        for process in (kernel, agent):
            process.start()
        for process in (kernel, agent):
            process.wait()
        assert client.wait(first.id, timeout=30).output == ["a-1", "a-2"]
        assert [line.label for line in log.lines()] == [
            *("create None", "checkpoint", "write a-1", "checkpoint"),
            *("open", "write a-2", "checkpoint"),
        ]
        (home / "go-b").touch()
        second = client.create(AGENT, {"name": "b"}, session="s")
        assert client.wait(second.id, timeout=30).output == ["a-1", "a-2", "b-1", "b-2"]
        fork = client.fork(first.id, at)
        assert client.wait(fork.id, timeout=30).output == ["a-1", "a-2"]
        created = [line.label for line in log.lines() if line.label.startswith("create")]
        assert len(created) == 2
        assert created[1].startswith(f"create {home}/copy-")
        assert Counter(line.label for line in log.lines())["write a-1"] == 1
    with Kernel(kernel.db) as file:
        for execution in (first, second):
            check_history(file, execution.id, by_webhook=True)
