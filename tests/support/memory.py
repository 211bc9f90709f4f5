"""A folder for files that nobody has to find again."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["quick_folder"]

_IN_MEMORY = Path("/dev/shm")


def quick_folder() -> tempfile.TemporaryDirectory[str]:
    """Removed when it is closed; in memory where the machine has such a place, since hundreds of
    commits to a disk take minutes."""
    usable = _IN_MEMORY.is_dir() and os.access(_IN_MEMORY, os.W_OK)
    return tempfile.TemporaryDirectory(dir=_IN_MEMORY if usable else None)
