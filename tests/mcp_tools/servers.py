"""The server of the tests, by its two roads, to be killed and started again."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from support.kernel_process import Command, free_port
from support.waiting import wait_until

from rebuno_sync.mcp import MCPClient

__all__ = ["OldOverHTTP", "OverHTTP", "OverStdio"]

_PROGRAM = Path(__file__).parent / "programs" / "tool_server.py"


class _Server:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "tool.log"
        self.log.touch()
        self.clients: list[MCPClient] = []

    def noted(self) -> list[str]:
        """What the tools noted when they ran, in order."""
        return self.log.read_text().splitlines()

    def waits_in(self, line: str) -> None:
        """Wait until a tool has noted that."""
        wait_until(lambda: line in self.noted(), f"{line!r} being noted")

    def close(self) -> None:
        for client in self.clients:
            client.close()


class OverStdio(_Server):
    """A process of each client's, which the client starts."""

    def client(self, **options: Any) -> MCPClient:
        client = MCPClient(
            [sys.executable, str(_PROGRAM)], env={"TOOL_LOG": str(self.log)}, **options
        )
        self.clients.append(client)
        return client

    def kill(self, client: MCPClient, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    def start(self) -> None:
        """The client does."""


class OverHTTP(_Server):
    """One process on one port, for one test after another."""

    generation = "new"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port = free_port()
        self.start()

    def start(self) -> None:
        self._process = Command(
            [sys.executable, str(_PROGRAM), str(self.port), self.generation],
            self.folder,
            "tool-server",
            TOOL_LOG=str(self.log),
        )
        self._process.listens(self.port)

    def renew(self) -> None:
        """As it was before the first test."""
        self.log.write_text("")
        self.clients.clear()
        if self._process.process.poll() is not None:
            self.start()

    def client(self, **options: Any) -> MCPClient:
        client = MCPClient(f"http://127.0.0.1:{self.port}/mcp", **options)
        self.clients.append(client)
        return client

    def kill(self, client: MCPClient, pid: int) -> None:
        self._process.kill()

    def end(self) -> None:
        self._process.kill()


class OldOverHTTP(OverHTTP):
    """Of a protocol generation in which a server keeps sessions, and forgets them when it ends."""

    generation = "old"
