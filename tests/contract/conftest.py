"""Every scenario runs on every deployment whose kernel makes its promise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .deployments import DEPLOYMENTS, Deployment
from .scenarios import applies


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "on" in metafunc.fixturenames:
        names = [
            name
            for name, (generation, _) in DEPLOYMENTS.items()
            if applies(metafunc.function, generation)
        ]
        metafunc.parametrize("on", names, indirect=True)


@pytest.fixture
def on(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """The deployment that the scenario runs on."""
    _, deploy = DEPLOYMENTS[request.param]
    deployment = deploy(tmp_path)
    yield deployment
    deployment.close()
