"""An execution as text, to be taken in by another file: JSON lines.

The first line says what it is and how many follow; each of those is a row of a table.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import UUID

from ..errors import APIError, api_error
from ..ports import Clock
from . import executions, sessions
from .moment import Moment
from .retention import removed_by_id
from .store import Connection, Store, kinship, portable, tables, waiting
from .store.portable import Row
from .store.rows import ExecutionRow
from .views import approval_view, event_view, execution_view, step_view

__all__ = ["Transfer"]

_FORMAT = 1
_ALL = -1
_BEGUN = ("running", "blocked")
_UNREADABLE = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)


class Transfer:
    """Executions out of, and into, one file."""

    def __init__(self, store: Callable[[], Store], clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def export(self, execution_id: str) -> str:
        """All that is recorded of an execution, whether or not it has ended."""

        def work(db: Connection) -> list[Row]:
            return portable.rows_of(db, executions.kept(db, execution_id).n)

        rows = self._store().read(work)
        lines = [{"rebuno_execution": _FORMAT, "id": execution_id, "rows": len(rows)}]
        lines += [{"table": row.table, "row": row.columns} for row in rows]
        return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)

    def take_in(self, text: str) -> ExecutionRow:
        """What ``export`` gave, into this file. One that had not ended goes on here."""
        rows = _read(text)
        row = rows[0].columns
        now = Moment.of(self._clock)

        def work(db: Connection) -> ExecutionRow:
            _check(db, row["id"], row["agent_id"], row.get("idempotency_key"))
            if row["status"] in _BEGUN and (session := row.get("session")):
                _check_session(db, session)
            try:
                portable.put_rows(db, rows, now.wall, now.boottime)
                _read_all(db, executions.get(db, row["id"]))
            except _UNREADABLE as error:
                raise _invalid(f"{error}; was it exported by a newer version?") from error
            if session := row.get("session"):
                sessions.admit(db, session, now)
            return executions.get(db, row["id"])

        store = self._store()
        taken = store.write(work, durable=True)
        store.work_queued()
        return taken


def _read(text: str) -> list[Row]:
    try:
        head, *lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        if head["rebuno_execution"] != _FORMAT:
            raise _invalid(
                f"its format is {head['rebuno_execution']}, this version knows {_FORMAT}"
            )
        if head["rows"] != len(lines):
            raise _invalid(f"it breaks off: it has {len(lines)} of {head['rows']} rows")
        rows = [Row(str(line["table"]), dict(line["row"])) for line in lines]
        executions_in_it = [row.columns for row in rows if row.table == "executions"]
        if rows[0].table != "executions" or len(executions_in_it) != 1:
            raise _invalid("it does not begin with its one execution")
        texts = [rows[0].columns[name] for name in ("id", "agent_id", "input", "status")]
        if not all(isinstance(value, str) for value in texts):
            raise _invalid("its execution is incomplete")
        for name in ("session", "idempotency_key"):
            if not isinstance(rows[0].columns.get(name), str | None):
                raise _invalid(f"its {name} is no text")
        if str(UUID(texts[0])) != texts[0]:
            raise _invalid(f"its id {texts[0][:80]!r} is no UUID")
    except _UNREADABLE as error:
        raise _invalid(f"{type(error).__name__}: {error}") from error
    return rows


def _read_all(db: Connection, row: ExecutionRow) -> None:
    """Look at it as everybody will: one that cannot be read would spoil every list it is in."""
    execution_view(row)
    for step in tables.steps(db, row.n):
        step_view(row.id, step)
    for event in tables.events(db, row.n, 0, _ALL):
        event_view(row.id, event)
    for approval in waiting.approvals_of(db, row.n):
        approval_view(approval)


def _check(db: Connection, execution_id: str, agent_id: str, key: str | None) -> None:
    if tables.execution(db, execution_id) or removed_by_id(db, execution_id):
        raise _conflict(f"execution {execution_id} is in this file already")
    if tables.agent_lease_seconds(db, agent_id) is None:
        raise api_error("not_found", f"not found: agent {agent_id!r} is not registered", 404)
    if key is not None and (holder := executions.find(db, agent_id, key)):
        raise _conflict(f"execution {holder.id} has the key {key!r} of {agent_id!r} here")


def _check_session(db: Connection, session: str) -> None:
    if kinship.in_session(db, session, "'running', 'blocked'"):
        raise _conflict(f"session {session!r} has an execution here that has not ended")


def _conflict(detail: str) -> APIError:
    return api_error("conflict", f"conflict: {detail}", 409)


def _invalid(detail: str) -> APIError:
    message = f"validation error: this is no export of an execution: {detail}"
    return api_error("validation_error", message, 400)
