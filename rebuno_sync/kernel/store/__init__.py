"""The kernel's file: the only modules that know SQLite and SQL."""

from . import (
    calls,
    counters,
    credentials,
    graves,
    portable,
    queue,
    registry,
    ring,
    rows,
    tables,
    waiting,
)
from .database import Connection, Database
from .owners import Owner
from .store import Store

__all__ = [
    "Connection",
    "Database",
    "Owner",
    "Store",
    "calls",
    "counters",
    "credentials",
    "graves",
    "portable",
    "queue",
    "registry",
    "ring",
    "rows",
    "tables",
    "waiting",
]
