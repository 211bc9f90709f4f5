"""An environment for each release of the async SDK, made once in a session of tests."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["KNOWS_NO_ATTEMPTS", "RELEASES", "Environments", "Release"]


@dataclass(frozen=True)
class Release:
    """A published release. ``signature``: the form in which its agents sign their requests.

    ``publishes_metadata``: whether they say what input they take. ``has_keys``: whether its client
    creates with an idempotency key.
    """

    version: str
    signature: str
    publishes_metadata: bool
    has_keys: bool

    def __str__(self) -> str:
        return self.version


RELEASES = [
    Release("0.29.2", signature="v1", publishes_metadata=True, has_keys=True),
    Release("0.16.0", signature="body", publishes_metadata=False, has_keys=False),
]

KNOWS_NO_ATTEMPTS = Release("0.13.0", signature="body", publishes_metadata=False, has_keys=False)
"""The last release of the first generation."""


class Environments:
    """The interpreters that have a release, in ``folder``; made when first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[Release, Path] = {}

    def python(self, release: Release) -> Path:
        if release not in self._made:
            home = self._folder / release.version
            python = home / "bin" / "python"
            _call(sys.executable, "-m", "venv", home)
            quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
            _call(python, "-m", "pip", "install", *quiet, f"rebuno=={release.version}")
            self._made[release] = python
        return self._made[release]


def _call(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    line = " ".join(map(str, command))
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
