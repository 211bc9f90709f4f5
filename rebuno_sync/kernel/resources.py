"""Resources: environments that steps change, and captures of them (protocol.md 9.6).

Functions of a transaction. An agent registers a resource under a key. Each step that may have
changed it begins a new generation; a checkpoint is of one generation, and of the past from the
next one on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..canonical import canonicalize
from ..errors import APIError, api_error
from ..types import Capture, CaptureFailure, Registration, ResourceView, StepKind, Touched
from .moment import Moment
from .store import Connection, resourcing, tables
from .store.resourcing import CheckpointRow, ResourceRow
from .suspension import Entry

__all__ = [
    "NOTHING_CAPTURED",
    "Captures",
    "begin_step",
    "bind",
    "bound",
    "captured",
    "check_binding",
    "check_known",
    "check_registration",
    "checkpoint",
    "checkpointed",
    "find",
    "inherit",
    "register",
    "settled",
    "told_again",
    "view",
]

_KEY = re.compile(r"[A-Za-z0-9_.-]{1,128}", re.ASCII)


class Captures(NamedTuple):
    """What an agent has captured, and what it could not capture."""

    captures: Sequence[Capture] = ()
    failures: Sequence[CaptureFailure] = ()


NOTHING_CAPTURED = Captures()


def _invalid(detail: str) -> APIError:
    return api_error("validation_error", f"validation error: {detail}", 400)


# -- registering


def check_registration(wanted: Registration) -> None:
    """Raise ``validation_error`` for what can be no resource."""
    if not _KEY.fullmatch(wanted.key):
        raise _invalid(
            f"resource key {wanted.key!r}: 1 to 128 letters, digits, dots, dashes and underscores"
        )
    if not wanted.driver_id:
        raise _invalid(f"resource {wanted.key!r} needs a driver_id")
    if wanted.every_steps < 0:
        raise _invalid("every_steps must not be negative")
    _check_json("configuration", wanted.configuration or "null")


def _check_json(name: str, text: str) -> None:
    """Refuse what could not be compared later (protocol.md 6.1): what is nested too deep, say."""
    try:
        canonicalize(text)
    except ValueError as error:
        raise _invalid(f"{name}: {error}") from None


def register(db: Connection, execution: int, wanted: Registration, now: Moment) -> ResourceRow:
    """The resource with that key; a new one, or the one that was registered alike."""
    known = resourcing.resource(db, execution, wanted.key)
    every, on_completion = wanted.every_steps, bool(wanted.on_completion)
    if every and wanted.on_completion is None:
        on_completion = True
    if known is not None:
        _check_alike(known, wanted)
        if known.every_steps or not every:
            return known
        # Captures may be asked for later, but what was asked for stays.
        row = known._replace(every_steps=every, on_completion=on_completion)
        _append(db, execution, [_registered(row)], now)
    else:
        row = ResourceRow(
            key=wanted.key,
            driver_id=wanted.driver_id,
            configuration=wanted.configuration,
            coverage_reuse=wanted.coverage_reuse,
            every_steps=every,
            on_completion=on_completion,
            registered_seq=tables.last_seq(db, execution) + 1,
        )
        _append(db, execution, [_registered(row)], now)
    resourcing.put_resource(db, execution, row)
    return row


def _check_alike(known: ResourceRow, wanted: Registration) -> None:
    differing = {
        "driver_id": known.driver_id != wanted.driver_id,
        "configuration": not _same(known.configuration, wanted.configuration),
        "coverage_reuse": bool(known.coverage_reuse) != wanted.coverage_reuse,
    }
    for name, differs in differing.items():
        if differs:
            raise api_error(
                "conflict",
                f"conflict: resource {known.key!r} was registered with another {name}; what the"
                " execution has done to it is not done to this one. Use another key",
                409,
            )


def _same(one: str | None, other: str | None) -> bool:
    return canonicalize(one or "null") == canonicalize(other or "null")


def _registered(row: ResourceRow) -> Entry:
    detail = {
        "key": row.key,
        "driver_id": row.driver_id,
        "configuration": json.loads(row.configuration or "null"),
        "coverage_reuse": bool(row.coverage_reuse),
        "every_steps": row.every_steps,
        "on_completion": bool(row.on_completion),
    }
    return "resource.registered", None, json.dumps(detail)


def check_binding(binding: str | None) -> str:
    """The binding; ``validation_error`` where there is none."""
    if binding is None or binding.strip() == "null":
        raise api_error("validation_error", "validation error: binding is missing", 400)
    return binding


def bind(db: Connection, execution: int, key: str, binding: str, now: Moment) -> None:
    """Remember what the resource is bound to; once, since it names one environment."""
    row = find(db, execution, key)
    _check_json("binding", binding)
    if row.binding is not None:
        if _same(row.binding, binding):
            return
        raise api_error("conflict", f"conflict: resource {key!r} is bound already", 409)
    resourcing.put_resource(db, execution, row._replace(binding=binding))
    _append(db, execution, [bound(key, binding)], now)


def bound(key: str, binding: str) -> Entry:
    return "resource.bound", None, json.dumps({"key": key, "binding": json.loads(binding)})


def find(db: Connection, execution: int, key: str) -> ResourceRow:
    row = resourcing.resource(db, execution, key)
    if row is None:
        raise api_error("not_found", f"not found: resource {key!r}", 404)
    return row


def view(db: Connection, execution: int, row: ResourceRow) -> ResourceView:
    """The resource as an agent sees it (protocol.md 3.8)."""
    return ResourceView(
        key=row.key,
        driver_id=row.driver_id,
        configuration=json.loads(row.configuration or "null"),
        coverage_reuse=bool(row.coverage_reuse),
        every_steps=row.every_steps,
        on_completion=bool(row.on_completion),
        registered_seq=row.registered_seq,
        generation=row.generation,
        count=row.changes,
        binding=None if row.binding is None else json.loads(row.binding),
        checkpoint_ref=row.checkpoint_ref,
        covered=resourcing.is_covered(db, execution, row),
    )


# -- steps


def check_known(db: Connection, execution: int, keys: Iterable[str]) -> None:
    """Raise ``validation_error`` for a key that is not registered."""
    for key in keys:
        if resourcing.resource(db, execution, key) is None:
            raise _invalid(f"unknown resource {json.dumps(key)}")


def begin_step(
    db: Connection, execution: int, step: int, kind: str, declared: Sequence[str], seq: int
) -> tuple[tuple[Touched, ...], str | None]:
    """A step starts or restarts with event ``seq``: what it touches, and what that event says."""
    registered = resourcing.resources(db, execution)
    if not registered:
        return (), None
    touched: list[Touched] = []
    changed: list[str] = []
    for row in registered:
        affected = kind != StepKind.LLM_CALL and row.key in declared
        if not affected and row.coverage_reuse:
            continue
        resourcing.advance(db, execution, row.key, seq)
        due = affected and row.every_steps > 0 and (row.changes + 1) % row.every_steps == 0
        touched.append(Touched(row.key, row.generation + 1, due))
        if affected:
            changed.append(row.key)
    if changed:
        resourcing.set_changed(db, step, json.dumps(changed))
    if not touched:
        return (), None
    generations = {it.key: it.generation for it in touched}
    said = {"resources": changed, "generations": generations}
    return tuple(touched), json.dumps({name: it for name, it in said.items() if it})


def told_again(db: Connection, execution: int, step: int) -> tuple[Touched, ...]:
    """What ``begin_step`` said of an executing step."""
    changed = json.loads(resourcing.changed(db, step) or "[]")
    return tuple(
        Touched(
            row.key,
            row.generation,
            row.key in changed and row.every_steps > 0 and (row.changes + 1) % row.every_steps == 0,
        )
        for row in resourcing.resources(db, execution)
        if row.key in changed or not row.coverage_reuse
    )


def settled(db: Connection, execution: int, step: int) -> None:
    """A step has ended: one more for each resource that it changed."""
    for key in json.loads(resourcing.changed(db, step) or "[]"):
        resourcing.count_up(db, execution, key)


# -- captures


def captured(
    db: Connection, execution: int, told: Captures, covered_seq: int, *, own: int | None = None
) -> list[Entry]:
    """Take captures in; the events that tell of them. ``own``: the step whose outcome they came
    with. A capture that is of no use is no error, but told."""
    entries: list[Entry] = [_failed(it.key, it.generation, it.error) for it in told.failures]
    seen: set[str] = set()
    for capture in told.captures:
        refusal = _refusal(db, execution, capture, seen, own)
        seen.add(capture.key)
        if refusal:
            entries.append(_failed(capture.key, capture.generation, refusal))
            continue
        row = CheckpointRow(capture.key, capture.generation, capture.checkpoint_ref, covered_seq)
        resourcing.add_checkpoint(db, execution, row)
        entries.append(checkpointed(row))
    return entries


def _refusal(
    db: Connection, execution: int, capture: Capture, seen: set[str], own: int | None
) -> str:
    row = resourcing.resource(db, execution, capture.key)
    if row is None:
        return "unknown_resource"
    if not capture.checkpoint_ref:
        return "missing_checkpoint_ref"
    if capture.key in seen:
        return "duplicate_capture"
    if capture.generation != row.generation:
        return "stale_generation"
    under_way = resourcing.changed_now(db, execution).items()
    if any(step != own and capture.key in json.loads(keys) for step, keys in under_way):
        return "writers_active"
    return ""


def _failed(key: str, generation: int, error: str) -> Entry:
    detail = {"key": key, "generation": generation, "error": error}
    return "resource.checkpoint_failed", None, json.dumps(detail)


def checkpointed(row: CheckpointRow) -> Entry:
    detail = {name: value for name, value in row._asdict().items() if name != "invalidated_seq"}
    return "resource.checkpointed", None, json.dumps(detail)


def checkpoint(db: Connection, execution: int, told: Captures, now: Moment) -> None:
    """Captures that came by themselves cover everything until now."""
    last = tables.last_seq(db, execution)
    entries = captured(db, execution, told, last)
    if entries:
        tables.append_events(db, execution, last, entries, now.wall)


# -- sessions


def inherit(db: Connection, execution: int, parent: int, seq: int) -> list[Entry]:
    """The resources of the execution before in the session, as they are bound; the events that
    tell of them, the first of which is to have the number ``seq``."""
    entries: list[Entry] = []
    for row in resourcing.resources(db, parent):
        own = row._replace(
            registered_seq=seq + len(entries), generation=0, changes=0, checkpoint_ref=None
        )
        resourcing.put_resource(db, execution, own)
        entries.append(_registered(own))
        if own.binding is not None:
            entries.append(bound(own.key, own.binding))
    return entries


def _append(db: Connection, execution: int, entries: Sequence[Entry], now: Moment) -> None:
    tables.append_events(db, execution, tables.last_seq(db, execution), entries, now.wall)
