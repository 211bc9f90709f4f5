"""Every public name is typed: a file of uses passes the two type checkers that people run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rebuno_sync

ROOT = Path(__file__).parent.parent
USES = Path(__file__).parent / "typing" / "public_names.py"


def check(*command: str | Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_uses_have_every_public_name() -> None:
    """Other than signals and errors, of which the kinds stand for one another."""
    text = USES.read_text()
    named = set(re.findall(r"\b(?:rebuno|errors|types)\.(\w+)", text)) | {"errors", "types"}
    assert set(rebuno_sync.__all__) - set(rebuno_sync.errors.__all__) - named == set()


@pytest.mark.slow
def test_mypy_accepts_the_uses(tmp_path: Path) -> None:
    """Strictly, an ignored mistake being one."""
    check("mypy", "--strict", "--warn-unused-ignores", "--cache-dir", tmp_path, USES)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("node"), reason="pyright runs on Node, which is not here")
def test_pyright_accepts_the_uses() -> None:
    """An ignored mistake is one here too."""
    settings = USES.with_name("pyrightconfig.json")
    check("pyright", "--pythonpath", sys.executable, "--project", settings)
