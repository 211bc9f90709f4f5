"""An operator's console: commands of ``rebuno-sync``, what they print and how they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rebuno_sync
from rebuno_sync.cli.main import main

__all__ = ["COMMAND", "Console", "Said", "environment"]

_SOURCE = Path(rebuno_sync.__file__).parent.parent

COMMAND = [sys.executable, "-W", "error", "-m", "rebuno_sync"]
"""The command in a process of its own."""


def environment(**more: str) -> dict[str, str]:
    """What a command sees: nothing that names another kernel."""
    kept = {name: it for name, it in os.environ.items() if not name.startswith("REBUNO_")}
    return {**kept, "PYTHONPATH": str(_SOURCE), **more}


class Said(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Console:
    """Where commands are given. ``where``: the options that name the kernel."""

    def __init__(self, where: Sequence[str], captured: pytest.CaptureFixture[str]) -> None:
        self.where = list(where)
        self._captured = captured

    def __call__(self, *command: str) -> Said:
        """Give a command in this process; one that asks no kernel is given by ``alone``."""
        return self.alone(*command, *self.where)

    def alone(self, *command: str) -> Said:
        self._captured.readouterr()
        try:
            code = main(command)
        except SystemExit as end:
            code = int(str(end.code or 0))
        return Said(code, *self._captured.readouterr())

    def done(self, *command: str) -> str:
        """Give a command that ends well; what it prints."""
        said = self(*command)
        assert (said.code, said.err) == (0, "")
        return said.out

    def json(self, *command: str) -> Any:
        return json.loads(self.done(*command, "--json"))

    def process(self, *command: str, **given: Any) -> Said:
        """Give a command to a process of its own."""
        done = subprocess.run(
            [*COMMAND, *command, *self.where],
            capture_output=True,
            text=True,
            timeout=60,
            env=environment(),
            **given,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    def start(self, *command: str, **given: Any) -> subprocess.Popen[str]:
        """Begin a command in a process of its own."""
        return subprocess.Popen(
            [*COMMAND, *command, *self.where],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            **given,
        )
