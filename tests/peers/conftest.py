"""The peers' interpreters and sites for the whole session, and a kernel's process for a test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.kernel_process import KernelProcess

from .environments import RELEASES, Environments, Release
from .features import FEATURES
from .sites import Site, Sites


@pytest.fixture(scope="session")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Environments:
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # That of all workers.
    return Environments(folder / "peers")


@pytest.fixture(scope="session")
def sites(environments: Environments, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    sites = Sites(environments, tmp_path_factory.mktemp("sites"))
    yield sites
    sites.close()


@pytest.fixture(params=RELEASES, ids=str)
def release(request: pytest.FixtureRequest) -> Release:
    chosen: Release = request.param
    return chosen


@pytest.fixture
def python(environments: Environments, release: Release) -> Path:
    """The interpreter that has the release."""
    return environments.python(release)


@pytest.fixture
def site(sites: Sites, release: Release) -> Site:
    """The one of the release, without a policy."""
    site = sites.of(release, described=FEATURES["agent metadata"].known_to(release))
    site.govern()
    return site


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[KernelProcess]:
    """A silent attempt is taken for dead after two seconds."""
    with KernelProcess(tmp_path, "--lease-timeout", "2") as process:
        yield process
