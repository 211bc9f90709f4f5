"""An environment with the current packages that are too heavy for everybody who tests.

It stands on the one that runs the tests: what is installed there is not installed again.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
import sysconfig
from pathlib import Path

__all__ = ["python_with_sdks"]

_PACKAGES = ("google-genai", "langchain", "langchain-openai", "langgraph", "litellm")


def python_with_sdks(folder: Path) -> Path:
    """The interpreter of the environment in ``folder``, made by the first process that asks."""
    folder.mkdir(exist_ok=True)
    python = folder / "bin" / "python"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            _call(sys.executable, "-m", "venv", "--without-pip", folder)
            _stand_on(folder)
            # Most of what is installed is never imported, so it need not be compiled.
            options = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-compile"]
            _call(python, "-m", "pip", "install", *options, *_PACKAGES)
            (folder / "made").touch()
    return python


def _stand_on(folder: Path) -> None:
    [packages] = folder.glob("lib/python*/site-packages")
    below = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "below.pth").write_text("".join(f"{path}\n" for path in sorted(below)))


def _call(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    line = " ".join(map(str, command))
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
