"""A kernel's process for each test, and the peers' interpreters for the whole session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kernel_process import KernelProcess

from .environments import RELEASES, Environments, Release


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Environments:
    return Environments(tmp_path_factory.mktemp("peers"))


@pytest.fixture(params=RELEASES, ids=str)
def release(request: pytest.FixtureRequest) -> Release:
    chosen: Release = request.param
    return chosen


@pytest.fixture
def python(environments: Environments, release: Release) -> Path:
    """The interpreter that has the release."""
    return environments.python(release)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[KernelProcess]:
    """A silent attempt is taken for dead after two seconds."""
    with KernelProcess(tmp_path, "--lease-timeout", "2") as process:
        yield process
