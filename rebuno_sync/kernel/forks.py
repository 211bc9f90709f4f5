"""Forks: executions that begin with the recorded steps of another one (protocol.md 9.5).

Functions of a transaction.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ..errors import api_error, failure_reason
from ..failures import decode_failure
from ..types import ExecutionStatus, Idempotency, StepStatus
from . import executions, identity, restoring, sessions, suspension
from .moment import Moment
from .restoring import Restored
from .steps import INDETERMINATE
from .store import Connection, counters, forking, resourcing, tables
from .store.resourcing import CheckpointRow
from .store.rows import ExecutionRow, StepRow
from .suspension import Entry

__all__ = ["Fork", "Points", "check", "create", "points", "retrying"]

_SETTLED = frozenset({StepStatus.SUCCEEDED, StepStatus.FAILED, StepStatus.DENIED})
_SETTLING = frozenset(f"step.{status}" for status in _SETTLED)
Logged = tuple[int, str, int | None, str | None]

_OF_A_TOOL = "tool_error: "
_BEGINNING = frozenset({"step.proposed", "step.rate_limited"})
_OF_RESOURCES = frozenset({"resource.registered", "resource.initialized"})
_MOST_EVENTS_AT_ONCE = 1000
_STORED = StepRow._fields.index("tries")
"""Where what a new step has ends."""


class Fork(NamedTuple):
    """How an execution is forked."""

    at_seq: int
    """The last event that counts."""
    session: str | None = None
    policy_bundle: str = ""
    """Empty for the source's own."""
    key: str | None = None
    left_out: frozenset[int] = frozenset()
    """The numbers of settled steps that are to run again."""
    indeterminate: frozenset[int] = frozenset()
    """The numbers of open steps that are copied as ended with an unknown outcome."""
    goes_on: bool = False
    """Whether it takes over the environments that no checkpoint is of."""


def _last_event(db: Connection, source: ExecutionRow) -> int:
    return tables.last_seq(db, source.n)


def check(db: Connection, source: ExecutionRow, fork: Fork) -> None:
    """Raise unless the source can be forked like that, with the protocol's first reason."""
    if fork.session is not None:
        sessions.check_name("session", fork.session)
        sessions.check_new(db, fork.session)
    last = _last_event(db, source)
    if not 1 <= fork.at_seq <= last:
        message = f"validation error: at_seq must be between 1 and {last}"
        raise api_error("validation_error", message, 400)


class Points(NamedTuple):
    """Where an execution can be forked."""

    latest_seq: int
    resources: dict[str, int]
    """By key, the event that registered it."""
    checkpoints: list[CheckpointRow]


def points(db: Connection, source: ExecutionRow) -> Points:
    registered = {row.key: row.registered_seq for row in resourcing.resources(db, source.n)}
    return Points(_last_event(db, source), registered, resourcing.checkpoints(db, source.n))


def retrying(db: Connection, source: ExecutionRow) -> Fork:
    """A fork of a failed execution that tries again what it failed of, and takes over its key.

    It failed of the failures after which it began nothing new, and of those that its reason names:
    of calls side by side, others may have begun after one had failed. What must not run twice
    replays its failure, and what of that was cut down has an unknown outcome.
    """
    last = _last_event(db, source)
    rows = {row.n: row for row in tables.steps(db, source.n)}
    at_most_once = {n for n, row in rows.items() if row.idempotency == Idempotency.AT_MOST_ONCE}
    failed: set[int] = set()
    for _, kind, step, _ in forking.log_until(db, source.n, last):
        if kind in _BEGINNING:
            failed = set()
        elif kind == "step.failed" and step is not None:
            failed.add(step)
    failed |= {n for n, row in rows.items() if _is_reason(row, source.failure_reason)}
    return Fork(
        last,
        key=source.idempotency_key,
        left_out=frozenset(failed - at_most_once),
        indeterminate=frozenset(n for n in at_most_once if rows[n].status is StepStatus.EXECUTING),
        goes_on=True,
    )


def _is_reason(step: StepRow, reason: str) -> bool:
    """Whether an execution that failed for that reason failed of the step's failure."""
    if step.status is not StepStatus.FAILED or not reason.startswith(_OF_A_TOOL + step.target):
        return False
    return failure_reason(decode_failure(step.error, step.target, step.step_id)) == reason


def create(
    db: Connection,
    source: ExecutionRow,
    fork: Fork,
    terms: executions.Terms,
    *,
    execution_id: str,
    now: Moment,
) -> ExecutionRow:
    """The fork: what was settled in the source by then is settled in it, under ids of its own."""
    deadline_at, deadline_due = terms.deadline(now)
    row = ExecutionRow(
        n=0,
        id=execution_id,
        agent_id=source.agent_id,
        status=ExecutionStatus.RUNNING if fork.session is None else ExecutionStatus.PENDING,
        input=source.input,
        output=None,
        failure_reason="",
        idempotency_key=fork.key,
        created_at=now.wall,
        updated_at=now.wall,
        deadline_at=deadline_at,
        deadline_due=deadline_due,
        max_attempts=terms.max_attempts,
        session=fork.session,
        parent=source.parent,
        spawner=None,
        spawner_step=None,
        on_behalf_of=None,
        forked_from=source.id,
        fork_seq=fork.at_seq,
    )
    if fork.key is not None:
        forking.give_up_key(db, source.n)
    row = row._replace(n=tables.insert_execution(db, row[1:]))
    bundle = fork.policy_bundle or forking.own_policy(db, source.n)
    if bundle:
        forking.set_own_policy(db, row.n, bundle)
    log = forking.log_until(db, source.n, fork.at_seq)
    chosen = restoring.selected(db, source.n, log, fork.at_seq)
    forked = {
        "source_execution_id": source.id,
        "fork_seq": fork.at_seq,
        "policy_override": bool(fork.policy_bundle),
    }
    if chosen:
        forked["restoration"] = restoring.restoration(chosen)
    entries: list[Entry] = [
        ("execution.created", None, executions.detail_of(row, "session")),
        ("execution.forked", None, json.dumps(forked)),
    ]
    numbers = _copy_steps(db, source, fork, row, log, now)
    entries += _copied_events(log, numbers, _renamed(db, source, row, numbers))
    entries += [("step.failed", numbers[n], None) for n in sorted(fork.indeterminate)]
    if chosen:
        bound = resourcing.resources(db, source.n) if fork.goes_on else ()
        bindings = {it.key: it.binding for it in bound if it.binding is not None}
        entries += _restored(db, row.n, chosen, bindings, entries)
    if row.session is None:
        entries.append(
            ("execution.started", None, executions.detail_of(row, "parent_execution_id"))
        )
        entries.append(suspension.queue_dispatch(db, row.n, now))
    _append(db, row.n, entries, now)
    if row.session is not None:
        sessions.admit(db, row.session, now)
    return executions.get(db, execution_id)


def _append(db: Connection, execution: int, entries: Sequence[Entry], now: Moment) -> None:
    for seq in range(0, len(entries), _MOST_EVENTS_AT_ONCE):
        some = entries[seq : seq + _MOST_EVENTS_AT_ONCE]
        tables.append_events(db, execution, seq, some, now.wall)


def _copy_steps(
    db: Connection,
    source: ExecutionRow,
    fork: Fork,
    row: ExecutionRow,
    log: Sequence[Logged],
    now: Moment,
) -> dict[int, int]:
    """The numbers of the copies, by those of the steps."""
    settled = {step for _, kind, step, _ in log if kind in _SETTLING} - fork.left_out
    steps = tables.stored_steps(db, source.n)
    ids = {step.step_id: _id_in(row.id, step) for step in steps}
    changed = resourcing.changed_by_steps(db, source.n)
    numbers: dict[int, int] = {}
    for step in steps:
        copy = step._replace(step_id=ids[step.step_id], parent=ids.get(step.parent, ""))
        if step.n in fork.indeterminate:
            copy = copy._replace(
                status=StepStatus.FAILED, error=INDETERMINATE, completed_at=now.wall
            )
        elif step.n not in settled or step.status not in _SETTLED:
            continue
        n = numbers[step.n] = tables.insert_step(db, row.n, copy[1:_STORED])
        if step.usage is not None:
            counters.set_usage(db, n, step.usage)
        if step.n in changed:
            resourcing.set_changed(db, n, changed[step.n])
    return numbers


def _restored(
    db: Connection,
    execution: int,
    chosen: Sequence[Restored],
    bindings: Mapping[str, str],
    entries: Sequence[Entry],
) -> list[Entry]:
    """Give the fork its resources, after the events that it has so far."""
    registered: dict[str, int] = {}
    for seq, (kind, _, detail) in enumerate(entries, 1):
        if kind == "resource.registered" and detail:
            registered.setdefault(json.loads(detail)["key"], seq)
    changes = Counter(
        key
        for keys in resourcing.changed_by_steps(db, execution).values()
        for key in json.loads(keys)
    )
    return restoring.restore(db, execution, chosen, registered, changes, bindings, len(entries) + 1)


def _renamed(
    db: Connection, source: ExecutionRow, row: ExecutionRow, numbers: Mapping[int, int]
) -> dict[str, str]:
    """The ids of the copies, by those of the steps."""
    copied = [step for step in tables.stored_steps(db, source.n) if step.n in numbers]
    return {step.step_id: _id_in(row.id, step) for step in copied}


def _id_in(execution_id: str, step: StepRow) -> str:
    return identity.step_id(execution_id, step.kind, step.target, step.args_hash, step.occurrence)


def _copied_events(
    log: Sequence[Logged],
    numbers: Mapping[int, int],
    ids: Mapping[str, str],
) -> Iterator[Entry]:
    for _, kind, step, detail in log:
        if step is not None and step in numbers and kind.startswith("step."):
            yield kind, numbers[step], detail
        elif kind in _OF_RESOURCES:
            yield kind, None, detail
        elif kind == "step.rate_limited" and detail:
            # It is no step's: it says what it would have been called, and may have become.
            said = json.loads(detail)
            if said["step_id"] in ids:
                yield kind, None, json.dumps({**said, "step_id": ids[said["step_id"]]})
