"""The benchmarks run: their figures are looked at by people, that they start is looked at here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
SCRIPTS = ["first_effect.py", "http_step.py", "model_call.py", "replay.py", "step.py"]


def test_every_benchmark_is_tried() -> None:
    """A script that prints ratios is in the list above."""
    found = [path.name for path in BENCHMARKS.glob("*.py") if "compare(" in path.read_text()]
    assert sorted(found) == sorted(["ratios.py", *SCRIPTS])


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_quick_form_prints_ratios(script: str, tmp_path: Path) -> None:
    """A short run ends well, with a ratio to the floor for each rival."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / script), "--quick"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" x ") >= 2, done.stdout
