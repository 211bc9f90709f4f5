"""Every scenario runs on every deployment whose kernel makes its promise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.receiver import Receiver

from .deployments import DEPLOYMENTS, Deployment
from .scenarios import applies


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "on" in metafunc.fixturenames:
        names = [
            name
            for name, place in DEPLOYMENTS.items()
            if applies(metafunc.function, place.generation, place.road, place.agents)
        ]
        metafunc.parametrize("on", names, indirect=True)


@pytest.fixture
def on(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """The deployment that the scenario runs on."""
    deployment = DEPLOYMENTS[request.param].deploy(tmp_path)
    yield deployment
    deployment.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver of webhooks that is the test's own."""
    with Receiver() as receiver:
        yield receiver
