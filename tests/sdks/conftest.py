"""The interpreter that has the packages, for the whole session; a provider for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.provider_server import Provider

from .environments import python_with_sdks


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    own = tmp_path_factory.getbasetemp()
    # The processes of pytest-xdist have folders of their own in a common one.
    return python_with_sdks((own if worker_id == "master" else own.parent) / "sdks")


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Provider() as provider:
        yield provider
