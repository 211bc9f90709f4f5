"""Copying a file while it is used."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from ...errors import StorageError
from .database import Database

__all__ = ["backup"]


def backup(database: Database, target: Path) -> None:
    """Copy the file, as of one instant, to a new one with mode 0600."""
    try:
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError as error:
        raise StorageError(f"{target} exists; a backup overwrites nothing") from error
    except OSError as error:
        raise StorageError(f"cannot create {target}: {error.strerror}") from error
    try:
        with database.reading() as source, closing(sqlite3.connect(target)) as copy:
            try:
                source.backup(copy)
            except sqlite3.Error as error:
                # Here, or it would be said of the kernel's file.
                raise StorageError(f"cannot write the backup {target}: {error}") from error
    except BaseException:
        target.unlink(missing_ok=True)
        raise
