"""A kernel, and an MCP server by each of its roads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rebuno_sync.kernel import Kernel

from .servers import OverHTTP, OverStdio


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    with Kernel(tmp_path / "kernel.db") as kernel:
        yield kernel


@pytest.fixture(params=[OverStdio, OverHTTP], ids=["stdio", "http"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OverStdio | OverHTTP]:
    server: OverStdio | OverHTTP = request.param(tmp_path)
    yield server
    server.close()
