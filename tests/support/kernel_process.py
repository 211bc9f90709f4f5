"""``rebuno-sync kernel`` as a process of its own, and other commands that serve beside it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import rebuno_sync

from .waiting import wait_until

__all__ = ["Command", "KernelProcess", "accepts", "free_port"]

_SOURCE = Path(rebuno_sync.__file__).parent.parent


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


def accepts(port: int) -> bool:
    """Whether somebody listens on a port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


class Command:
    """A running command whose output is kept in ``folder``. Leaving its ``with`` block kills it."""

    def __init__(
        self, command: Sequence[str | Path], folder: Path, name: str, **environment: str
    ) -> None:
        self.name = name
        self._out = folder / f"{name}.out"
        with self._out.open("ab") as out:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, **environment},
            )

    @property
    def said(self) -> str:
        return self._out.read_text()

    def says(self, pattern: str, seconds: float = 30.0) -> re.Match[str]:
        """Wait until its output has ``pattern``."""

        def look() -> re.Match[str] | None:
            self._must_run()
            return re.search(pattern, self.said)

        return wait_until(look, f"{self.name} saying {pattern!r}", seconds)

    def listens(self, port: int, seconds: float = 30.0) -> Self:
        """Wait until it takes connections."""

        def look() -> bool:
            self._must_run()
            return accepts(port)

        wait_until(look, f"{self.name} listening on port {port}", seconds)
        return self

    def _must_run(self) -> None:
        if (status := self.process.poll()) is not None:
            raise AssertionError(f"{self.name} ended with status {status}:\n{self.said}")

    def stop(self, seconds: float = 20.0) -> int:
        """SIGTERM, and wait for its end; its exit status."""
        self.process.terminate()
        return int(self.process.wait(seconds))

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()


class KernelProcess(Command):
    """A kernel on a free port, with ``kernel.db`` in ``folder``."""

    TOKEN = "the operator's token"

    def __init__(self, folder: Path, *options: str) -> None:
        command = [sys.executable, "-W", "error", "-m", "rebuno_sync", "kernel"]
        command += ["--db", str(folder / "kernel.db"), "--listen", "127.0.0.1:0", *options]
        super().__init__(
            command,
            folder,
            "kernel",
            PYTHONPATH=str(_SOURCE),
            REBUNO_BEARER_TOKEN=self.TOKEN,
        )

    @property
    def url(self) -> str:
        return self.says(r"listens on (\S+)\n").group(1)

    def client(self) -> rebuno_sync.Client:
        return rebuno_sync.Client(self.url, self.TOKEN)
