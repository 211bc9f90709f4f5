"""A client of the async SDK in a process of its own, asked by tests."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from .environments import PROGRAMS, variables

__all__ = ["AsyncOperator", "Refused"]


class Refused(Exception):
    """What its client raised: the name of the class, the status and the code."""

    def __init__(self, name: str, status: int, code: str) -> None:
        super().__init__(name, status, code)
        self.name, self.status, self.code = name, status, code


class AsyncOperator:
    """Asks a kernel at ``url`` with ``token``, unless told otherwise."""

    def __init__(self, python: Path, url: str, token: str) -> None:
        self._token = token
        self._process = subprocess.Popen(
            [python, PROGRAMS / "async_operator.py", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=variables(),
        )

    def ask(self, method: str, *args: object, token: str = "", **keywords: object) -> Any:
        """Call a method of the client; what it gives, as JSON has it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(
            json.dumps([method, args, keywords, token or self._token]),
            file=self._process.stdin,
            flush=True,
        )
        line = self._process.stdout.readline()
        assert line, f"the operator's process ended when it was asked to {method}"
        value, refusal = json.loads(line)
        if refusal is not None:
            raise Refused(*refusal)
        return value

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()
