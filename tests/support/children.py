"""Programs of the tests, each run in a fresh interpreter: real processes, real signals."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import rebuno_sync

from .waiting import wait_until

__all__ = ["Child", "ChildScript", "arguments", "say"]

_ROOTS = (Path(rebuno_sync.__file__).parent.parent, Path(__file__).parent.parent)
_ORDER = itertools.count(1)


def arguments() -> dict[str, Any]:
    """In a child: what ``ChildScript.start`` was given."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    return given


def say(value: object) -> None:
    """In a child: tell the test something, as one line of JSON."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


class ChildScript:
    """A Python file to be run in processes of its own, with ``folder`` for what they print.

    ``python``: the interpreter. ``options``: its options; warnings are errors unless they say
    otherwise.
    """

    def __init__(
        self,
        path: Path,
        folder: Path,
        *,
        python: str | Path = sys.executable,
        options: tuple[str, ...] = ("-W", "error"),
        **given: object,
    ) -> None:
        self.path = path
        self.folder = folder
        self.python = str(python)
        self.options = options
        self.given = given

    def start(self, **given: object) -> Child:
        """Start it with the arguments of the script and these; paths are passed as text."""
        name = f"{self.path.stem}-{next(_ORDER)}"
        command = [self.python, "-X", "faulthandler", *self.options, str(self.path)]
        return Child(
            [*command, json.dumps({**self.given, **given}, default=str)], self.folder, name
        )

    def run(self, *, seconds: float = 30.0, **given: object) -> Any:
        """Start it, wait for its good end, and return what it said last."""
        with self.start(**given) as child:
            return child.result(seconds)


class Child:
    """A running program. Leaving its ``with`` block kills it."""

    def __init__(self, command: list[str], folder: Path, name: str) -> None:
        self.name = name
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, _ROOTS))}
        # Files, not pipes: a grandchild that lives on would keep a pipe open.
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment
            )
        self.pid = self.process.pid

    @property
    def said(self) -> list[Any]:
        """What it said so far, a value for each line."""
        *lines, _unfinished = self._out.read_text().split("\n")
        return [json.loads(line) for line in lines]

    @property
    def errors(self) -> str:
        return self._err.read_text()

    def hears(self, value: object, seconds: float = 20.0) -> None:
        """Wait until it has said ``value``."""
        self.says(lambda said: said == value, repr(value), seconds)

    def says(self, wanted: Any, what: str, seconds: float = 20.0) -> Any:
        """Wait until it says something that ``wanted`` accepts; that."""

        def look() -> list[Any]:
            ended = self.process.poll() is not None
            found = [value for value in self.said if wanted(value)]
            if ended and not found:
                raise AssertionError(f"{self.name} ended without saying {what}:\n{self.errors}")
            return found

        return wait_until(look, f"{self.name} saying {what}", seconds)[0]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    def ends_within(self, seconds: float) -> bool:
        """Whether it ends by itself in that time."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def returncode(self, seconds: float = 30.0) -> int:
        """Its exit status. A child that hangs is made to print its threads' stacks."""
        if not self.ends_within(seconds):
            self.process.send_signal(signal.SIGABRT)
            self.ends_within(5.0)
            raise AssertionError(f"{self.name} has not ended in {seconds} s:\n{self.errors}")
        return int(self.process.returncode)

    def result(self, seconds: float = 30.0) -> Any:
        """What it said last, once it has ended well."""
        status = self.returncode(seconds)
        assert status == 0, f"{self.name} ended with {status}:\n{self.errors}"
        return self.said[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()
