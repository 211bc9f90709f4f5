"""SQL statements: functions of a connection, in the words of the rules that call them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from ...types import DispatchStatus, ExecutionStatus, LeaseKey, StepStatus
from . import texts
from .log import append_events as append_events
from .log import events as events
from .log import last_seq as last_seq
from .rows import DispatchRow, ExecutionRow, Standing, StepRow

_EXECUTION = ", ".join(ExecutionRow._fields)
_STEP = ", ".join(StepRow._fields)
_NEW_STEP = ", ".join(StepRow._fields[1:-3])
_DISPATCH = ", ".join(DispatchRow._fields)
_LONG_OF_EXECUTIONS = [name in texts.PACKED["executions"] for name in ExecutionRow._fields[1:]]
_LONG_OF_STEPS = [name in texts.PACKED["steps"] for name in StepRow._fields[1:-3]]
"""Which texts of a new row are packed."""


# -- meta


def meta(db: sqlite3.Connection, key: str) -> str | None:
    row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else row[0]


def set_meta(db: sqlite3.Connection, key: str, value: str) -> None:
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


# -- agents


def agent_lease_seconds(db: sqlite3.Connection, agent_id: str) -> float | None:
    """0 for the kernel's default, ``None`` for an agent that is not registered."""
    row = db.execute("SELECT lease_seconds FROM agents WHERE id = ?", (agent_id,)).fetchone()
    return None if row is None else row[0]


# -- executions


def _execution(db: sqlite3.Connection, row: tuple[object, ...] | None) -> ExecutionRow | None:
    if row is None:
        return None
    found = ExecutionRow._make(row)
    return found._replace(
        status=ExecutionStatus(found.status),
        input=texts.unpack(db, found.input),
        output=texts.unpack(db, found.output),
    )


def execution(db: sqlite3.Connection, execution_id: str) -> ExecutionRow | None:
    sql = f"SELECT {_EXECUTION} FROM executions WHERE id = ?"
    return _execution(db, db.execute(sql, (execution_id,)).fetchone())


def execution_by_number(db: sqlite3.Connection, n: int) -> ExecutionRow:
    row = db.execute(f"SELECT {_EXECUTION} FROM executions WHERE n = ?", (n,)).fetchone()
    found = _execution(db, row)
    assert found is not None
    return found


def execution_id(db: sqlite3.Connection, n: int) -> str:
    found: str = db.execute("SELECT id FROM executions WHERE n = ?", (n,)).fetchone()[0]
    return found


def execution_by_key(db: sqlite3.Connection, agent_id: str, key: str) -> ExecutionRow | None:
    sql = f"SELECT {_EXECUTION} FROM executions WHERE agent_id = ? AND idempotency_key = ?"
    return _execution(db, db.execute(sql, (agent_id, key)).fetchone())


def executions(
    db: sqlite3.Connection, agent_id: str, status: str, before: str, limit: int, session: str = ""
) -> Iterator[ExecutionRow]:
    """Newest first, read as they are taken; ``agent_id``, ``status``, ``before`` (an id) and
    ``session`` filter when not empty."""
    filters = [("agent_id = ?", agent_id), ("status = ?", status), ("id < ?", before)]
    filters.append(("session = ?", session))
    used = [(text, value) for text, value in filters if value]
    where = " AND ".join(text for text, _ in used) or "TRUE"
    sql = f"SELECT {_EXECUTION} FROM executions WHERE {where} ORDER BY id DESC LIMIT ?"
    for row in db.execute(sql, (*(value for _, value in used), limit)):
        if (found := _execution(db, row)) is not None:
            yield found


def insert_execution(db: sqlite3.Connection, row: Sequence[object]) -> int:
    """``row`` is an ``ExecutionRow`` without its number."""
    marks = ", ".join("?" * len(row))
    values = _packed(db, row, _LONG_OF_EXECUTIONS)
    cursor = db.execute(f"INSERT INTO executions ({_EXECUTION[3:]}) VALUES ({marks})", values)
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _packed(db: sqlite3.Connection, row: Sequence[object], long: Sequence[bool]) -> list[object]:
    return [
        texts.pack(db, value) if packs else value for value, packs in zip(row, long, strict=True)
    ]


def end_execution(
    db: sqlite3.Connection,
    n: int,
    status: ExecutionStatus,
    now: int,
    *,
    output: str | None = None,
    reason: str = "",
    state: str | None = None,
) -> None:
    db.execute(
        "UPDATE executions SET status = ?, output = ?, failure_reason = ?, state = ?,"
        " updated_at = ? WHERE n = ?",
        (status, texts.pack(db, output), reason, texts.pack(db, state), now, n),
    )


LIVE = "status IN ('pending', 'running', 'blocked')"


def past_deadline(db: sqlite3.Connection, now: float) -> list[str]:
    sql = f"SELECT id FROM executions WHERE deadline_due <= ? AND {LIVE} ORDER BY deadline_due"
    return [row[0] for row in db.execute(sql, (now,)).fetchall()]


# -- the fence


_STANDING = """
SELECT e.n, e.status, e.deadline_due,
       (SELECT max(seq) FROM events WHERE execution = e.n),
       d.n, d.status, d.attempt, d.strikes, d.lease_seconds, d.renewed, e.agent_id, d.owner,
       d.wants_notice, d.runner
FROM executions e LEFT JOIN dispatches d ON d.id = ? AND d.execution = e.n
WHERE e.id = ?"""


def standing(db: sqlite3.Connection, lease: LeaseKey) -> Standing | None:
    row = db.execute(_STANDING, (lease.dispatch_id, lease.execution_id)).fetchone()
    if row is None:
        return None
    n, status, deadline, seq, dispatch, dispatch_status, *rest = row
    if dispatch is None:
        rest = [0, 0, 0.0, 0.0, row[-4], None, 0, None]
        return Standing(n, ExecutionStatus(status), deadline, seq, None, None, *rest)
    return Standing(
        n, ExecutionStatus(status), deadline, seq, dispatch, DispatchStatus(dispatch_status), *rest
    )


SettledStep = tuple[str, StepStatus, str | None, str | None, str]
"""Step id, status, result, error and rule id."""

_SETTLED = """
SELECT s.step_id, s.status, s.result, s.error, s.rule_id
FROM executions e
JOIN dispatches d ON d.execution = e.n AND d.id = ? AND d.attempt = ? AND d.status = 'in_flight'
JOIN steps s ON s.execution = e.n AND s.status IN ('succeeded', 'failed', 'denied')
WHERE e.id = ? AND e.status = 'running'"""


def settled_step(db: sqlite3.Connection, lease: LeaseKey, step_id: str) -> SettledStep | None:
    """A settled step, read together with the lease's fence."""
    execution_id, dispatch_id, attempt, _ = lease
    sql = _SETTLED + " AND s.step_id = ?"
    row = db.execute(sql, (dispatch_id, attempt, execution_id, step_id)).fetchone()
    if row is None:
        return None
    _, status, result, error, rule_id = row
    result, error = texts.unpack(db, result), texts.unpack(db, error)
    return step_id, StepStatus(status), result, error, rule_id


def small_settled_steps(db: sqlite3.Connection, lease: LeaseKey) -> list[SettledStep]:
    """Every settled step whose record is not packed, under the lease's fence."""
    execution_id, dispatch_id, attempt, _ = lease
    sql = _SETTLED + " AND typeof(coalesce(s.result, s.error, '')) = 'text'"
    rows = db.execute(sql, (dispatch_id, attempt, execution_id)).fetchall()
    return [(row[0], StepStatus(row[1]), *row[2:]) for row in rows]


def renew(db: sqlite3.Connection, dispatch: int, monotonic: float) -> None:
    db.execute("UPDATE dispatches SET renewed = ? WHERE n = ?", (monotonic, dispatch))


# -- steps


def _step(db: sqlite3.Connection, row: tuple[object, ...] | None) -> StepRow | None:
    if row is None:
        return None
    found = StepRow._make(row)
    return found._replace(
        status=StepStatus(found.status),
        result=texts.unpack(db, found.result),
        error=texts.unpack(db, found.error),
    )


def step(db: sqlite3.Connection, execution: int, step_id: str) -> StepRow | None:
    sql = f"SELECT {_STEP} FROM steps WHERE execution = ? AND step_id = ?"
    return _step(db, db.execute(sql, (execution, step_id)).fetchone())


def step_by_number(db: sqlite3.Connection, n: int) -> StepRow:
    found = _step(db, db.execute(f"SELECT {_STEP} FROM steps WHERE n = ?", (n,)).fetchone())
    assert found is not None
    return found


def steps(db: sqlite3.Connection, execution: int, *, terminal: bool = False) -> list[StepRow]:
    """Ordered by step id (protocol.md 2.2)."""
    only = "AND status IN ('succeeded', 'failed', 'denied', 'cancelled')" if terminal else ""
    sql = f"SELECT {_STEP} FROM steps WHERE execution = ? {only} ORDER BY step_id"
    rows = db.execute(sql, (execution,)).fetchall()
    return [whole_step(db, row) for row in _steps(db, rows)]


def _steps(db: sqlite3.Connection, rows: Sequence[tuple[object, ...]]) -> list[StepRow]:
    return [found for row in rows if (found := _step(db, row)) is not None]


def whole_step(db: sqlite3.Connection, row: StepRow) -> StepRow:
    """With its arguments. The rules look at many steps and need none, so ``step`` leaves them."""
    return row._replace(args=texts.unpack(db, row.args))


def stored_steps(db: sqlite3.Connection, execution: int) -> list[StepRow]:
    """In the order in which they were recorded, with their texts as they stand in the file: for
    ``insert_step``."""
    sql = f"SELECT {_STEP} FROM steps WHERE execution = ? ORDER BY n"
    rows = map(StepRow._make, db.execute(sql, (execution,)).fetchall())
    return [row._replace(status=StepStatus(row.status)) for row in rows]


def count_steps(db: sqlite3.Connection, execution: int) -> int:
    sql = "SELECT count(*) FROM steps WHERE execution = ?"
    return int(db.execute(sql, (execution,)).fetchone()[0])


def executing_steps(db: sqlite3.Connection, execution: int) -> list[StepRow]:
    """Those under way, between two tries too."""
    sql = (
        f"SELECT {_STEP} FROM steps WHERE execution = ?"
        " AND (status = 'executing' OR status = 'allowed' AND tries > 0) ORDER BY n"
    )
    return _steps(db, db.execute(sql, (execution,)).fetchall())


def indeterminate_twin(
    db: sqlite3.Connection, execution: int, kind: str, target: str, args_hash: str
) -> bool:
    """Whether the same call ended with an unknown outcome before (protocol.md 7.2, 11)."""
    row = db.execute(
        "SELECT 1 FROM steps WHERE execution = ? AND args_hash = ? AND status = 'failed'"
        " AND kind = ? AND target = ?"
        " AND CASE WHEN typeof(error) <> 'text' THEN FALSE"
        " WHEN json_valid(error) AND json_type(error) = 'object'"
        " THEN json_extract(error, '$.reason') = 'indeterminate' ELSE FALSE END LIMIT 1",
        (execution, args_hash, kind, target),
    ).fetchone()
    return row is not None


def enclosed_steps(
    db: sqlite3.Connection, execution_id: str
) -> list[tuple[str, str, str, str, str, int]]:
    """Parent, step id and identity of the steps that were called in other steps' bodies."""
    return db.execute(
        "SELECT s.parent, s.step_id, s.kind, s.target, s.args_hash, s.occurrence"
        " FROM executions e JOIN steps s ON s.execution = e.n AND s.parent <> '' WHERE e.id = ?",
        (execution_id,),
    ).fetchall()


def insert_step(db: sqlite3.Connection, execution: int, row: Sequence[object]) -> int:
    """``row`` is a ``StepRow`` without its number and its tries."""
    cursor = db.execute(
        f"INSERT INTO steps (execution, {_NEW_STEP}) VALUES"
        " (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (execution, *_packed(db, row, _LONG_OF_STEPS)),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def start_step(db: sqlite3.Connection, n: int, at: int, due: float) -> None:
    sql = "UPDATE steps SET status = 'executing', started_at = ?, started_due = ? WHERE n = ?"
    db.execute(sql, (at, due, n))


def allow_step(db: sqlite3.Connection, n: int) -> None:
    """It has been approved; its body has still to start."""
    db.execute("UPDATE steps SET status = 'allowed' WHERE n = ?", (n,))


def put_back_step(db: sqlite3.Connection, n: int, tries: int, at: int, due: float) -> None:
    """So many tries have failed; the next one may begin when ``due``."""
    db.execute(
        "UPDATE steps SET status = 'allowed', tries = ?, retry_at = ?, retry_due = ? WHERE n = ?",
        (tries, at, due, n),
    )


def settle_step(
    db: sqlite3.Connection,
    n: int,
    status: StepStatus,
    now: int,
    *,
    result: str | None = None,
    error: str | None = None,
    usage: str | None = None,
) -> None:
    sql = "UPDATE steps SET (status, result, error, completed_at, usage) = (?,?,?,?,?) WHERE n = ?"
    db.execute(sql, (status, texts.pack(db, result), texts.pack(db, error), now, usage, n))


# -- dispatches


def insert_dispatch(
    db: sqlite3.Connection,
    dispatch_id: str,
    execution: int,
    agent_id: str,
    max_attempts: int,
    due_at: int,
    due: float,
) -> None:
    db.execute(
        "INSERT INTO dispatches (id, execution, agent_id, status, attempt, strikes, max_attempts,"
        " due_at, due) VALUES (?, ?, ?, 'pending', 0, 0, ?, ?, ?)",
        (dispatch_id, execution, agent_id, max_attempts, due_at, due),
    )


def open_dispatch(db: sqlite3.Connection, execution: int) -> DispatchRow | None:
    """The dispatch of an execution that is not retired; there is at most one."""
    sql = f"SELECT {_DISPATCH} FROM dispatches WHERE execution = ? AND status <> 'exhausted'"
    row = db.execute(sql, (execution,)).fetchone()
    if row is None:
        return None
    found = DispatchRow._make(row)
    return found._replace(status=DispatchStatus(found.status))


def claim_dispatch(
    db: sqlite3.Connection, n: int, owner: str, lease_seconds: float, monotonic: float
) -> None:
    db.execute(
        "UPDATE dispatches SET status = 'in_flight', attempt = attempt + 1, strikes = strikes + 1,"
        " owner = ?, lease_seconds = ?, renewed = ?, wants_notice = 0, runner = NULL WHERE n = ?",
        (owner, lease_seconds, monotonic, n),
    )
    db.execute("DELETE FROM occurrences WHERE dispatch = ?", (n,))
    db.execute("DELETE FROM requests WHERE dispatch = ?", (n,))


def reschedule_dispatch(
    db: sqlite3.Connection, n: int, status: DispatchStatus, strikes: int, due_at: int, due: float
) -> None:
    db.execute(
        "UPDATE dispatches SET status = ?, strikes = ?, owner = NULL, due_at = ?, due = ?"
        " WHERE n = ?",
        (status, strikes, due_at, due, n),
    )


def clear_strikes(db: sqlite3.Connection, n: int) -> None:
    db.execute("UPDATE dispatches SET strikes = 0 WHERE n = ?", (n,))


def retire_dispatches(db: sqlite3.Connection, execution: int) -> None:
    db.execute(
        "UPDATE dispatches SET status = 'exhausted', owner = NULL"
        " WHERE execution = ? AND status <> 'exhausted'",
        (execution,),
    )
