"""A served kernel for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.services import Service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path) as service:
        yield service


@pytest.fixture(params=[True, False], ids=["extensions", "plain"])
def either(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Service]:
    """With the extensions of protocol.md 17, and without any."""
    with Service(tmp_path, extensions=request.param, lease_timeout=6.0) as service:
        yield service
