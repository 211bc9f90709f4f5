"""One kernel on a file of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rebuno_sync.kernel import Kernel


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    with Kernel(tmp_path / "kernel.db") as kernel:
        yield kernel
