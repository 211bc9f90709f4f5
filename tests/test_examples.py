"""Every program of ``examples/`` runs as its first lines say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kernel_process import Command, KernelProcess, free_port
from support.waiting import wait_until

import rebuno_sync

EXAMPLES = Path(__file__).parent.parent / "examples"
SOURCE = str(Path(rebuno_sync.__file__).parent.parent)
SECRET = "the agent's secret"

pytestmark = pytest.mark.slow


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[KernelProcess]:
    with KernelProcess(tmp_path) as process:
        yield process


def surroundings(kernel: KernelProcess | None = None, port: int = 0) -> dict[str, str]:
    """The environment of an example."""
    given = {"PYTHONPATH": SOURCE, "PYTHONWARNINGS": "error"}
    if kernel is not None:
        given |= {"REBUNO_URL": kernel.url, "REBUNO_API_KEY": kernel.TOKEN, "PORT": str(port)}
        given |= {"REBUNO_AGENT_SECRET": SECRET}
    return given


def run(name: str, folder: Path, *arguments: str, **environment: str) -> list[str]:
    """The lines that an example printed once it has ended well."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, f"{name}:\n{done.stdout}\n{done.stderr}"
    assert not done.stderr, f"{name}:\n{done.stderr}"
    return done.stdout.splitlines()


def test_script(tmp_path: Path) -> None:
    """The second run prints what the first returned, and does nothing."""
    *did, result = run("script.py", tmp_path, **surroundings())
    assert did == ["searching A-17", "charging 300"]
    assert run("script.py", tmp_path, **surroundings()) == [result]


def test_the_script_is_that_of_the_readme() -> None:
    """But for what it prints while it works."""
    [shown] = (EXAMPLES.parent / "README.md").read_text().split("```python\n")[1:2]
    shown = shown.partition("```")[0]
    lines = (EXAMPLES / "script.py").read_text().partition('"""\n\n')[2].splitlines()
    assert [line for line in lines if not line.startswith('    print("')] == shown.splitlines()


def test_in_process(tmp_path: Path) -> None:
    assert run("in_process.py", tmp_path, **surroundings()) == ["0", "0", "1", "5", "14"]


def test_approvals(tmp_path: Path) -> None:
    """An agent that was killed while it waited goes on with the decision."""
    agent = [sys.executable, EXAMPLES / "approvals" / "agent.py", "A-17"]
    console = "approvals/console.py"
    with Command(agent, tmp_path, "agent", **surroundings(), PYTHONUNBUFFERED="1") as waiting:
        shown = wait_until(lambda: run(console, tmp_path, **surroundings()), "the agent asking")
        assert shown == ["Refund this order? refund {'cents': 400, 'order': 'A-17'}"]
        assert waiting.said.startswith("looking up A-17\n")
        waiting.says(r"waits for approval \S+ \(refund\)\n")
    assert run(console, tmp_path, "alice", "grant", **surroundings()) == shown
    printed = run("approvals/agent.py", tmp_path, "A-17", **surroundings())
    assert printed == ["refunding A-17", "400 for A-17"]


def test_service(kernel: KernelProcess, tmp_path: Path) -> None:
    """It serves until it is told to stop."""
    port = free_port()
    given = surroundings(kernel, port)
    command = [sys.executable, EXAMPLES / "service.py"]
    with Command(command, tmp_path, "service", **given) as service:
        service.listens(port)
        assert run("service.py", tmp_path, "ada", **given) == ["Hello Ada"]
        assert service.stop() == 0, service.said
        assert not service.said


def test_several_agents(kernel: KernelProcess, tmp_path: Path) -> None:
    """Each of them answers."""
    printed = run("several_agents.py", tmp_path, **surroundings(kernel, free_port()))
    assert printed == ["Rome is old, and Rome is large"]
    with kernel.client() as client:
        assert [agent.id for agent in client.agents()] == ["research", "write"]


def test_several_processes(kernel: KernelProcess, tmp_path: Path) -> None:
    """All executions end well, in workers that gunicorn started."""
    port = free_port()
    given = surroundings(kernel, port)
    command = [sys.executable, "-m", "gunicorn", "--chdir", str(EXAMPLES), "--workers", "3"]
    command += ["--bind", f"127.0.0.1:{port}", "several_processes:app"]
    quiet = {**given, "PYTHONWARNINGS": "default"}
    with Command(command, tmp_path, "gunicorn", **quiet) as gunicorn:
        gunicorn.listens(port)
        printed = run("several_processes.py", tmp_path, **given)
        outputs = [json.loads(line.replace("'", '"')) for line in printed]
        assert [output["twice"] for output in outputs] == [2 * number for number in range(12)]
        assert gunicorn.process.pid not in {output["process"] for output in outputs}
        assert gunicorn.stop() == 0, gunicorn.said


def test_every_example_is_run() -> None:
    """By a test of its name."""
    named = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in EXAMPLES.glob("*.py")} <= named
    assert {path.name for path in EXAMPLES.iterdir() if (path / "agent.py").exists()} <= named
