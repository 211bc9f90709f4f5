"""What every test has: a database of its own, and property tests that do not time themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A loaded machine is no reason for a property to fail.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(autouse=True)
def _own_kernel_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the folder that it is started in."""
    monkeypatch.setenv("REBUNO_DB", str(tmp_path / "default.db"))
