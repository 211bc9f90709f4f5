"""No row of protocol.md's Appendix B is lost: each has a test on every road that it is for."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from .deployments import Deployment
from .scenarios import APPENDIX_B, Generation, Road, applies, over_http, rows

ONLY_OVER_HTTP = {
    "B5": "an agent that names no attempt: in process a lease has one",
    "B32": "in process whoever has the Kernel is the operator, and nothing is signed",
}
"""Rows that say nothing of a kernel without a wire, and why."""


def _tests() -> Iterator[Callable[..., object]]:
    """The scenarios of this folder."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if path != Path(__file__):
            module = importlib.import_module(f"{__package__}.{path.stem}")
            yield from (
                found
                for name, found in vars(module).items()
                if name.startswith("test_") and "on" in inspect.signature(found).parameters
            )


def shown(tests: Iterator[Callable[..., object]], road: Road) -> set[str]:
    """The rows that are tested with the embedded kernel on a road."""
    return {row for test in tests if applies(test, Generation.EMBEDDED, road) for row in rows(test)}


_shown = cache(lambda road: shown(_tests(), road))


def test_the_table_has_every_row() -> None:
    """B1 to B40, in their order."""
    assert list(APPENDIX_B) == [f"B{number}" for number in range(1, 41)]


@pytest.mark.parametrize("road", Road)
@pytest.mark.parametrize("row", APPENDIX_B)
def test_every_row_has_a_test(row: str, road: Road) -> None:
    """In process and over HTTP; a row that means nothing in process says so, and has none."""
    expected = road is Road.HTTP or row not in ONLY_OVER_HTTP
    assert (row in _shown(road)) == expected, f"{row} {road.value}"


def test_a_row_that_is_lost_is_noticed() -> None:
    """A test shows the rows of its name, on the roads that it takes, and no other."""

    def test_b07_b28_both(on: Deployment) -> None: ...

    @over_http
    def test_b05_over_http(on: Deployment) -> None: ...

    def test_b1_is_no_row(on: Deployment) -> None: ...

    def test_between_is_no_row(on: Deployment) -> None: ...

    tests = [test_b07_b28_both, test_b05_over_http, test_b1_is_no_row, test_between_is_no_row]
    assert shown(iter(tests), Road.HTTP) == {"B5", "B7", "B28"}
    assert shown(iter(tests), Road.IN_PROCESS) == {"B7", "B28"}


def test_a_row_that_there_is_not_is_refused() -> None:
    """A name that says B41 is a mistake."""

    def test_b41_of_another_table(on: Deployment) -> None: ...

    with pytest.raises(KeyError):
        applies(test_b41_of_another_table, Generation.EMBEDDED, Road.HTTP)
