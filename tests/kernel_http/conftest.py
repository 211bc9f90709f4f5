"""A kernel on a clock that tests move, with two agents whose webhooks are kept and not sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel

from .moves import Inbox
from .wire import AGENT, OTHER, SECRET, Wire


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kernel.db"


@pytest.fixture
def kernel(path: Path, clock: ManualClock) -> Iterator[Kernel]:
    with Kernel(path, clock=clock) as opened:
        for agent_id in (AGENT, OTHER):
            opened.register_agent(agent_id, webhook_url="http://agent/webhook", secret=SECRET)
        yield opened


@pytest.fixture
def wire(kernel: Kernel, clock: ManualClock) -> Wire:
    return Wire(kernel, clock)


@pytest.fixture
def inbox(kernel: Kernel) -> Inbox:
    return Inbox(kernel)
