"""How commands end when something is in their way: an exit code and words, never a traceback."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from support.kernel_process import KernelProcess, free_port
from support.waiting import wait_until

from rebuno_sync.kernel import Kernel

from .conftest import begin, step
from .console import COMMAND, Console, environment


@pytest.fixture
def at_file(kernel: Kernel, capsys: pytest.CaptureFixture[str]) -> Console:
    return Console(["--db", str(kernel.path)], capsys)


# -- the kernel


def test_a_kernel_that_is_away(at_file: Console) -> None:
    """What is to be started, or named, is said."""
    address = f"http://127.0.0.1:{free_port()}"
    said = at_file.alone("executions", "list", "--kernel", address)
    assert (said.code, said.out) == (1, "")
    assert all(text in said.err for text in (address, "rebuno-sync kernel", "--kernel URL"))


def test_a_token_that_is_wrong(served: str, at_file: Console) -> None:
    """And where another one is taken from; the token is not repeated."""
    said = at_file.alone("keys", "list", "--kernel", served, "--token", "wrong-one")
    assert (said.code, "$REBUNO_API_KEY" in said.err) == (1, True)
    assert "wrong-one" not in said.err


def test_the_environment_names_a_kernel_and_a_file_is_named_over_it(
    kernel: Kernel, served: str, at_file: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``REBUNO_URL`` with ``REBUNO_API_KEY``, unless ``--db`` is given."""
    kernel.create("plain")
    monkeypatch.setenv("REBUNO_URL", served)
    assert at_file.alone("executions", "list").code == 1
    monkeypatch.setenv("REBUNO_BEARER_TOKEN", "operators")
    assert at_file.alone("executions", "list").code == 0
    monkeypatch.setenv("REBUNO_URL", "nonsense")
    assert at_file("executions", "list").code == 0
    said = at_file.alone("executions", "list")
    assert (said.code, "REBUNO_URL" in said.err) == (2, True)


def test_files_that_are_none_of_a_kernels(at_file: Console, tmp_path: Path) -> None:
    """One that is not there is not made; whatever else it is stays as it was."""
    text = tmp_path / "text"
    text.write_text("this is no database, but it is long enough to be looked at" * 20)
    for path, told in (
        (tmp_path / "missing.db", "--db"),
        (tmp_path, "is a folder"),
        (text, "not an SQLite database"),
    ):
        for command in (["executions", "list"], ["backup", str(tmp_path / "copy")]):
            said = at_file.alone(*command, "--db", str(path))
            assert (said.code, said.out, said.err.count("\n")) == (1, "", 1)
            assert told in said.err
    assert not (tmp_path / "missing.db").exists()


def test_bad_usage_has_a_status_of_its_own(at_file: Console) -> None:
    """No action, an unknown one, an address that is none, two kernels at once."""
    for command in (
        ["executions"],
        ["approvals", "frobnicate"],
        ["executions", "list", "--kernel", "ftp://x"],
        ["executions", "list", "--kernel", "http://x", "--db", "y"],
        ["executions", "list", "--token", "\u20ac"],
        ["executions", "list", "--db", "~nobody-of-this-name/kernel.db"],
        ["executions", "watch", "x", "--after", "9" * 5000],
        ["keys", "create", "\udcff", "--scope", "agents:read", *at_file.where],
    ):
        assert at_file.alone(*command).code == 2


# -- signals


def test_ctrl_c_while_another_program_holds_the_file(kernel: Kernel, at_file: Console) -> None:
    """The command waits for the lock, and ends at once all the same."""
    with closing(sqlite3.connect(kernel.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with at_file.start("keys", "create", "x", "--scope", "agents:read") as process:
            lock = f"{kernel.path}-lock"
            wait_until(lambda: has_open(process.pid, lock), "the command waiting for the file")
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == -signal.SIGINT
            assert process.stderr is not None
            assert process.stderr.read() == ""


def has_open(pid: int, path: str) -> bool:
    folder = Path(f"/proc/{pid}/fd")
    return any(os.path.realpath(fd) == path for fd in folder.iterdir())


def test_ctrl_c_ends_watching(kernel: Kernel, at_file: Console) -> None:
    """What was printed stays; the execution goes on."""
    lease = begin(kernel, "plain")
    with at_file.start("executions", "watch", lease.execution_id) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "execution.created" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == -signal.SIGINT
        assert "Traceback" not in process.stderr.read()
    assert kernel.get(lease.execution_id).status == "running"


# -- the output


def test_nobody_reads_on(kernel: Kernel, at_file: Console) -> None:
    """``| head`` ends the command without a complaint, as it ends any other."""
    lease = begin(kernel, "plain")
    for n in range(100):
        step(kernel, lease, f"target-{n}", "x" * 1000)
    with at_file.start("executions", "show", lease.execution_id, "--full") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) == 128 + signal.SIGPIPE
        assert process.stderr.read() == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is full")
def test_nothing_can_be_written(at_file: Console) -> None:
    """Status 1, and why."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*COMMAND, "policies", "list", *at_file.where],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            check=False,
        )
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert "No space left" in done.stderr


def test_a_terminal_that_lacks_a_character(kernel: Kernel, at_file: Console) -> None:
    """It is told by its number."""
    kernel.create("plain", "caf\u00e9 \u20ac")
    execution_id = kernel.list().executions[0].id
    done = subprocess.run(
        [*COMMAND, "executions", "show", execution_id, *at_file.where],
        capture_output=True,
        text=True,
        env=environment(PYTHONIOENCODING="ascii"),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "caf\\xe9 \\u20ac" in done.stdout


# -- a day of an operator, in processes of their own


@pytest.mark.slow
def test_an_operators_day_with_a_kernel_that_is_killed_meanwhile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Watching goes on over a restart of the kernel, and ends with the execution."""
    port = free_port()
    options = ("--listen", f"127.0.0.1:{port}")
    console = Console(
        ["--kernel", f"http://127.0.0.1:{port}", "--token", KernelProcess.TOKEN], capsys
    )
    with KernelProcess(tmp_path, *options) as kernel:
        kernel.listens(port)
        with kernel.client() as client:
            client.register_agent("plain")
            execution_id = client.create("plain").id
        assert execution_id in console.process("executions", "list").out
        watching = console.start("executions", "watch", execution_id)
        assert watching.stdout is not None
        assert "execution.created" in watching.stdout.readline()
        kernel.kill()
    with watching, KernelProcess(tmp_path, *options) as kernel:
        kernel.listens(port)
        assert console.process("executions", "cancel", execution_id).code == 0
        assert "execution.cancelled" in watching.stdout.read()
        assert watching.wait(30) == 1
