"""The kernel's file: the only modules that know SQLite and SQL."""

from . import (
    calls,
    counters,
    credentials,
    forking,
    graves,
    kinship,
    portable,
    queue,
    registry,
    resourcing,
    ring,
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
    "credentials",
    "forking",
    "graves",
    "kinship",
    "portable",
    "queue",
    "registry",
    "resourcing",
    "ring",
    "rows",
    "tables",
    "waiting",
    "wakes",
]
