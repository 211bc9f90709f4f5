"""An environment for each release of the async SDK, made once in a session of tests."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "KNOWS_NO_ATTEMPTS",
    "NEWEST",
    "OLDEST",
    "PROGRAMS",
    "RELEASES",
    "Environments",
    "Release",
    "variables",
]

PROGRAMS = Path(__file__).parent / "programs"
"""What runs in the environments: it has the SDK, and not this project."""


def variables() -> dict[str, str]:
    """Lead to the log of effects, and to no copy of this project's package."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REBUNO_")}
    return {**kept, "PYTHONPATH": str(PROGRAMS.parent.parent)}


@dataclass(frozen=True)
class Release:
    """A published release. ``signature``: the form in which its agents sign their requests."""

    version: str
    signature: str

    def __str__(self) -> str:
        return self.version


NEWEST = Release("0.29.2", signature="v1")
OLDEST = Release("0.16.0", signature="body")
RELEASES = [NEWEST, OLDEST]
"""Those that are driven through all that they know."""

KNOWS_NO_ATTEMPTS = Release("0.13.0", signature="body")
"""The last release of the first generation."""


class Environments:
    """The interpreters that have a release, in ``folder``; made when first asked for.

    Other processes of the tests may share the folder.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder

    def python(self, release: Release) -> Path:
        home = self._folder / release.version
        made = home / "made"
        with (self._folder / f"{release}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                _call(sys.executable, "-m", "venv", "--clear", "--without-pip", home)
                install = [sys.executable, "-m", "pip", "--python", home / "bin" / "python"]
                quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
                _call(*install, "install", *quiet, f"rebuno=={release}")
                made.touch()
        return home / "bin" / "python"


def _call(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    line = " ".join(map(str, command))
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
