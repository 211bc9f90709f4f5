"""A process of the demo as its parent sees it: started, listened to, killed, never left behind."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from types import TracebackType
from typing import Any, Self

from .demo_child import Settings

__all__ = ["DemoFailed", "Process"]

_SILENCE_SECONDS = 120.0
_MODULE = "rebuno_sync.cli.demo_child"


class DemoFailed(Exception):
    """The demo could not come to its end."""


class Process:
    """Runs one attempt. It cannot outlive the block that it is used in."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        # -P and the parent's own path: what lies in the working directory must not be imported.
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)  # noqa: PTH109
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE, json.dumps(asdict(settings))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**environment, "PYTHONPATH": path},
            # A Ctrl-C is the demo's to answer, which ends this process.
            start_new_session=True,
        )
        self.pid = self._process.pid

    def messages(self) -> Iterator[dict[str, Any]]:
        """What it tells, until it ends. Raises ``DemoFailed`` when it falls silent."""
        assert self._process.stdout is not None
        source = self._process.stdout.fileno()
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(source, selectors.EVENT_READ)
            while True:
                if not selector.select(_SILENCE_SECONDS):
                    raise DemoFailed(
                        f"process {self.pid} has told nothing for {_SILENCE_SECONDS:.0f} s"
                    )
                read = os.read(source, 65536)
                if not read:
                    return
                *lines, rest = (rest + read).split(b"\n")
                yield from map(json.loads, lines)

    def kill(self) -> None:
        """Send SIGKILL: the process can neither notice it nor tidy up."""
        self._process.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        """Wait for its end; minus the number of the signal that ended it, else its exit code."""
        return self._process.wait(_SILENCE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
