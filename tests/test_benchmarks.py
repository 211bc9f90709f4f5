"""The benchmarks run: their figures are looked at by people, that they start is looked at here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
SCRIPTS = [
    "delay.py",
    "first_effect.py",
    "http_step.py",
    "model_call.py",
    "replay.py",
    "service.py",
    "step.py",
]


def test_every_benchmark_is_tried() -> None:
    """A script that prints ratios is in the list above."""
    found = [path.name for path in BENCHMARKS.glob("*.py") if "compare(" in path.read_text()]
    assert sorted(found) == sorted(["ratios.py", *SCRIPTS])


def quick(script: str, folder: Path) -> str:
    """What a short run prints, which ends well."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), "--quick"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_quick_form_prints_ratios(script: str, tmp_path: Path) -> None:
    """One to the floor for each rival."""
    said = quick(script, tmp_path)
    assert said.count(" x ") >= 2, said


@pytest.mark.slow
def test_a_hundred_leases_are_renewed_beside_cpu_bound_threads(tmp_path: Path) -> None:
    """The short form of `heartbeats.py`: every beat is accepted before its lease has run out."""
    said = quick("heartbeats.py", tmp_path)
    assert " 0 beats not accepted" in said, said
