"""One execution as rows that another file can take in, whatever tables there are."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from . import texts
from .graves import tables_of_executions

__all__ = ["Row", "UnknownRow", "put_rows", "rows_of"]

_FIRST = ("executions", "steps")
"""Others refer to these by their numbers."""

_OF_A_PROCESS = frozenset({"owner", "runner"})
"""Columns that mean nothing elsewhere."""


_VALUES: dict[str, type | tuple[type, ...]] = {
    "INTEGER": int,
    "REAL": (int, float),
    "TEXT": (str, bytes),
    "BLOB": (str, bytes),
}
"""What stands in columns of a type; packed texts are bytes."""


class Row(NamedTuple):
    table: str
    columns: dict[str, Any]


class UnknownRow(ValueError):
    """This file cannot have such a row."""


def rows_of(db: sqlite3.Connection, n: int) -> list[Row]:
    """All that belongs to an execution, as of one instant."""
    db.execute("BEGIN")
    try:
        found = list(_rows(db, "executions", "n", n))
        for table in _others(db):
            found += _rows(db, table, "execution", n)
        return found
    finally:
        db.execute("COMMIT")


def _others(db: sqlite3.Connection) -> list[str]:
    tables = tables_of_executions(db)
    return sorted(tables, key=lambda table: table not in _FIRST)


def _rows(db: sqlite3.Connection, table: str, column: str, n: int) -> Iterator[Row]:
    names = _columns(db, table)
    # Numbers are given anew in this order: what was recorded first stays so.
    order = "ORDER BY n" if "n" in names else ""
    sql = f"SELECT {', '.join(names)} FROM {table} WHERE {column} = ? {order}"
    for values in db.execute(sql, (n,)).fetchall():
        columns = {
            name: texts.unpack(db, value) if isinstance(value, bytes) else value
            for name, value in zip(names, values, strict=True)
            if name not in _OF_A_PROCESS
        }
        yield Row(table, columns)


def _columns(db: sqlite3.Connection, table: str) -> dict[str, str]:
    """The types of a table's columns, by their names."""
    sql = "SELECT name, type FROM pragma_table_info(?)"
    return dict(db.execute(sql, (table,)).fetchall())


def put_rows(db: sqlite3.Connection, rows: Iterable[Row], now: int, boottime: float) -> None:
    """Take in what ``rows_of`` gave, under numbers of this file. What was under way elsewhere is
    due here; timers go on from the wall clock."""
    known = {"executions", *tables_of_executions(db)}
    numbers: dict[str, dict[int, int]] = {table: {} for table in _FIRST}
    for table, given in rows:
        if table not in known:
            raise UnknownRow(f"there is no table {table!r}")
        columns = dict(given)
        old = columns.pop("n", None)
        for name, of in (("execution", "executions"), ("step", "steps")):
            if (number := columns.get(name)) is not None:
                if number not in numbers[of]:
                    raise UnknownRow(f"a row of {table!r} names a missing {name}: {number}")
                columns[name] = numbers[of][number]
        _restart_timers(columns, now, boottime)
        if columns.get("status") == "in_flight":
            columns["status"] = "pending"
        for name in texts.PACKED.get(table, ()):
            if name in columns:
                columns[name] = texts.pack(db, columns[name])
        n = _insert(db, table, columns)
        if table in numbers and isinstance(old, int):
            numbers[table][old] = n


def _restart_timers(columns: dict[str, Any], now: int, boottime: float) -> None:
    for name in list(columns):
        if name == "due" or name.endswith("_due"):
            at = columns.get("due_at" if name == "due" else name[:-3] + "at")
            columns[name] = None if at is None else boottime + (at - now) / 1e6


def _insert(db: sqlite3.Connection, table: str, columns: dict[str, Any]) -> int:
    has = _columns(db, table)
    if unknown := columns.keys() - has.keys():
        raise UnknownRow(f"the table {table!r} has no column {min(unknown)!r}")
    for name, value in columns.items():
        # SQLite itself would keep a text in a column of numbers.
        if value is not None and not isinstance(value, _VALUES[has[name]]):
            raise UnknownRow(f"{name!r} of {table!r} cannot be {value!r:.80}")
    names, marks = ", ".join(columns), ", ".join("?" * len(columns))
    sql = f"INSERT INTO {table} ({names}) VALUES ({marks})"
    try:
        return db.execute(sql, tuple(columns.values())).lastrowid or 0
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError, OverflowError) as error:
        raise UnknownRow(f"a row of {table!r} does not fit: {error}") from error
