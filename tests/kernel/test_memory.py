"""A process that runs many executions keeps nothing of them."""

from __future__ import annotations

import gc
import itertools
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

EXECUTIONS = 40
BYTES_EACH = 5 * 2**20 / 10_000


@rebuno.tool
def double(n: int) -> int:
    return 2 * n


def handler(n: int) -> int:
    return double(n)


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def test_c29_an_execution_that_has_ended_leaves_nothing_in_memory(path: Path, traced: None) -> None:
    """Ten thousand of them would make the process grow by less than 5 MB."""
    with Kernel(path) as kernel:

        def run_some(first: int) -> int:
            for n in range(first, first + EXECUTIONS):
                assert rebuno.run(handler, {"n": n}, key=f"k{n}", kernel=kernel) == 2 * n
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        # What is kept once, a cache say, grows in one round; a leak in each.
        sizes = [run_some(n * EXECUTIONS) for n in range(5)]
        grown = min(after - before for before, after in itertools.pairwise(sizes))
        assert grown < EXECUTIONS * BYTES_EACH, sizes
