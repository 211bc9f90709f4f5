"""No cell touches the folder that it is started in: worlds have files of their own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _own_kernel_file() -> None:
    """A folder for each of thousands of cells would take longer than the cells."""
