"""A kernel on a clock that tests move by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel

from .moves import AGENT


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the kernel's file is, or will be."""
    return tmp_path / "kernel.db"


@pytest.fixture
def kernel(path: Path, clock: ManualClock) -> Iterator[Kernel]:
    """A kernel with leases of 120 s, an agent and, apart from that, the defaults."""
    with Kernel(path, clock=clock) as opened:
        opened.register_agent(AGENT)
        yield opened
