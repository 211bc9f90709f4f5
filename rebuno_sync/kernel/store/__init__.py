"""The kernel's file: the only modules that know SQLite and SQL."""

from . import (
    calls,
    counters,
    forking,
    kinship,
    queue,
    registry,
    resourcing,
    rows,
    tables,
    waiting,
    wakes,
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
    "forking",
    "kinship",
    "queue",
    "registry",
    "resourcing",
    "rows",
    "tables",
    "waiting",
    "wakes",
]
