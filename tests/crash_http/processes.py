"""A kernel and its agents as processes that keep their addresses when they are started again."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from support.children import Child, ChildScript
from support.waiting import wait_until

import rebuno_sync as rebuno

__all__ = ["SECRET", "TOKEN", "AgentProcess", "KernelProcess", "free_port"]

TOKEN = "the operator's token"
SECRET = "the agent's secret"

_PROGRAMS = Path(__file__).parent / "programs"
_PORTS = range(20_000, 32_000)
"""Below those that systems give to outgoing connections: a process that is away keeps its own."""


def free_port() -> int:
    """A port of this machine that nobody uses."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class KernelProcess:
    """``rebuno-sync kernel`` on one file and one address, however often it is started."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.db = folder / "kernel.db"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._options = options
        self._starts = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.client = rebuno.Client(self.url, TOKEN)

    def start(self) -> None:
        """Start it, and do not wait until it listens."""
        self._starts += 1
        command = [sys.executable, "-W", "error", "-m", "rebuno_sync", "kernel"]
        command += ["--db", str(self.db), "--listen", f"127.0.0.1:{self.port}", *self._options]
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "REBUNO_BEARER_TOKEN": TOKEN},
            )

    @property
    def _out(self) -> Path:
        return self._folder / f"kernel-{self._starts}.out"

    @property
    def said(self) -> str:
        return self._out.read_text()

    @property
    def listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.said
        return re.search(r"its file is .*\n", self.said) is not None

    def wait(self) -> None:
        """Wait until it listens."""
        wait_until(lambda: self.listens, "the kernel's start")

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Self:
        self.start()
        self.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.client.close()
        self.kill()


class AgentProcess:
    """A program that serves an agent at one address, however often it is started."""

    def __init__(self, program: str, folder: Path, agent_id: str, **given: object) -> None:
        self.agent_id = agent_id
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/webhook"
        self._script = ChildScript(
            _PROGRAMS / program,
            folder,
            agent=agent_id,
            secret=SECRET,
            port=self.port,
            **given,
        )
        self.child: Child | None = None

    def start(self) -> None:
        """Start it, and do not wait until it serves."""
        self.child = self._script.start()

    @property
    def running(self) -> Child:
        assert self.child is not None
        return self.child

    @property
    def listens(self) -> bool:
        assert self.running.process.poll() is None, self.running.errors
        return "serving" in self.running.said[:1]

    def wait(self) -> None:
        """Wait until it takes webhooks."""
        self.running.says(lambda said: said == "serving", "that it serves")

    def register(self, kernel: KernelProcess, url: str = "") -> None:
        kernel.client.register_agent(self.agent_id, url or self.url, SECRET)

    def stop(self) -> None:
        """Halt it where it is, as a machine that is paused."""
        self.running.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.running.signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.child is not None:
            self.child.kill()

    def __enter__(self) -> Self:
        self.start()
        self.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()
