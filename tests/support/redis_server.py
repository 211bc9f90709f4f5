"""A Redis server of the test's own, for tests marked ``services``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .kernel_process import Command, free_port

__all__ = ["redis_server"]


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Its URL. Without ``redis-server`` on this machine the test fails where ``CI`` is set, and is
    left out elsewhere, with the command that brings it."""
    if shutil.which("redis-server") is None:
        missing = "there is no redis-server here: apt-get install redis-server"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    port = free_port()
    command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", ""]
    with Command(command, folder, "redis") as server:
        server.listens(port)
        yield f"redis://127.0.0.1:{port}/0"
