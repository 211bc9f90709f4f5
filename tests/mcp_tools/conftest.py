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


@pytest.fixture(scope="session")
def over_http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OverHTTP]:
    server = OverHTTP(tmp_path_factory.mktemp("tools"))
    yield server
    server.end()


@pytest.fixture
def http(over_http: OverHTTP) -> Iterator[OverHTTP]:
    over_http.renew()
    yield over_http
    over_http.close()


@pytest.fixture
def stdio(tmp_path: Path) -> Iterator[OverStdio]:
    server = OverStdio(tmp_path)
    yield server
    server.close()


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest) -> OverStdio | OverHTTP:
    server: OverStdio | OverHTTP = request.getfixturevalue(request.param)
    return server
