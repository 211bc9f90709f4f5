"""The kernel's file: the only modules that know SQLite and SQL."""

from . import calls, counters, queue, registry, rows, tables, waiting
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
    "queue",
    "registry",
    "rows",
    "tables",
    "waiting",
]
