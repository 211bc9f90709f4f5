"""Runs rivals in turns and prints the ratios of their medians; figures compare within a run."""

from __future__ import annotations

import argparse
import platform
import sqlite3
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Rival", "arguments", "compare"]


class Rival(NamedTuple):
    name: str
    measure: Callable[[], float]
    """Runs once and gives seconds for each unit (a step, say)."""


def arguments(description: str) -> argparse.Namespace:
    """The options that every benchmark has; ``--quick`` only shows that it runs."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a short run, for CI")
    return parser.parse_args()


def compare(title: str, floor: Rival, *others: Rival, turns: int) -> None:
    """Measure all in turns, ``turns`` times, and print medians and ratios to ``floor``."""
    rivals = [floor, *others]
    seconds: dict[str, list[float]] = {rival.name: [] for rival in rivals}
    for turn in range(turns):
        for rival in rivals if turn % 2 == 0 else reversed(rivals):
            seconds[rival.name].append(rival.measure())
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    print(f"{title} (Python {platform.python_version()}, SQLite {sqlite3.sqlite_version})")
    for name, median in medians.items():
        ratio = median / medians[floor.name]
        spread = (max(seconds[name]) - min(seconds[name])) / median
        figures = f"{median * 1e6:>9.0f} us  {1 / median:>8.0f} /s  {ratio:>6.2f} x"
        print(f"  {name:<52} {figures}  (spread {spread:.0%})")


def timed(work: Callable[[], object], units: int) -> float:
    """Seconds for each of ``units`` that one call of ``work`` does."""
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) / units
