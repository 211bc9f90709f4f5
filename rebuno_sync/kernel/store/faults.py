"""Errors of SQLite, in words for whoever can do something about them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...errors import StorageError

__all__ = ["PATIENCE_SECONDS", "storage_error", "storage_errors"]

PATIENCE_SECONDS = 60.0
"""How long a write waits for other processes, ours and others'."""


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise storage_error(path, error) from error


_ADVICE = {
    "SQLITE_BUSY": f"another program has held its write lock for {PATIENCE_SECONDS:.0f} seconds",
    "SQLITE_FULL": "the disk is full; what was recorded is safe, make room and run again",
    "SQLITE_NOTADB": "it is not an SQLite database; name another file for the kernel",
    "SQLITE_READONLY": "it cannot be written; check its owner and its folder's",
    "SQLITE_CANTOPEN": "it cannot be opened; check that its folder exists and is writable",
    "SQLITE_CORRUPT": "it is damaged; restore a backup",
}


def storage_error(path: Path, error: sqlite3.Error) -> StorageError:
    """What a person can do about an error of SQLite."""
    name = getattr(error, "sqlite_errorname", "")
    for prefix, text in _ADVICE.items():
        if name.startswith(prefix):
            return StorageError(f"the kernel's file {path}: {text} (SQLite: {error})")
    return StorageError(f"the kernel's file {path} cannot be used: {error}")
