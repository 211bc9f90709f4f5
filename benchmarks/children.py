"""Processes that a benchmark talks to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["script"]

HERE = Path(__file__).parent


@contextmanager
def script(name: str, *arguments: str) -> Iterator[int]:
    """Run a script of this folder while the block runs; the port that it prints."""
    with subprocess.Popen(
        [sys.executable, HERE / name, *arguments], stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            yield int(child.stdout.readline())
        finally:
            child.kill()
