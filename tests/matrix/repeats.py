"""Requests that are sent again under their ids, whatever has happened since (protocol.md 17,
``request-id``)."""

from __future__ import annotations

from .beginnings import begin
from .cells import HTTP, Column, Row, Scene, Table, rule
from .roads import World
from .states import STATES, State

__all__ = ["REPEATS"]

_SUBMIT_ID = "0190a0a0-0000-7000-8000-000000000001"
_OUTCOME_ID = "0190a0a0-0000-7000-8000-000000000002"

_CALL = {"kind": "tool_call", "target": "repeated", "args": None}

_GONE = (
    rule("unknown", "!not_found", "2.2"),
    rule("ended", "execution_terminal", "7.2 (5), 8.1 (1)"),
)

_SUBMIT = Column(
    "submit again",
    (
        *_GONE,
        rule("outdated", "!lease_superseded", "5.4"),
        rule("", "proceed", "17 request-id"),
    ),
    "POST /v0/executions/{id}/steps",
    _CALL,
    request_id=_SUBMIT_ID,
)
_OUTCOME = Column(
    "complete step again",
    (
        *_GONE,
        rule("outdated", "replay", "8.1 (2)"),
        rule("", "recorded", "17 request-id"),
    ),
    "POST /v0/executions/{id}/steps/{step}/complete",
    {"result": 2},
    request_id=_OUTCOME_ID,
)


def _another(column: Column, body: object, outdated: str) -> Column:
    return Column(
        column.name.replace("again", "with another body"),
        (
            *_GONE,
            rule("outdated", outdated, "5.4, 8.1 (2)"),
            rule("", "!validation_error", "17 request-id"),
        ),
        column.route,
        body,
        request_id=column.request_id,
    )


def _row(name: str, state: State) -> Row:
    def reach(world: World) -> Scene:
        scene = begin(world, "executing", mortal=state.mortal)
        for column, answer in ((_SUBMIT, "proceed"), (_OUTCOME, "recorded")):
            assert world.ask(column, scene) == answer
        return state.reach(world, scene)

    step = "" if "unknown" in state.words else "step-succeeded settled"
    # The call that was proposed runs still.
    return Row(name, reach, f"{state.words} {step}", noticed=state.noticed, roads=(HTTP,))


_SINCE = (
    "running",
    "lease over",
    "reclaimed",
    "released",
    "backing off",
    "blocked",
    "elsewhere",
    "suspended",
    "sleeping",
    "parked",
    "completed",
    "failed",
    "cancelled",
    "past its deadline",
    "removed",
)

REPEATS = Table(
    tuple(_row(name, STATES[name]) for name in _SINCE),
    (
        _SUBMIT,
        _OUTCOME,
        _another(_SUBMIT, {**_CALL, "args": 1}, "!lease_superseded"),
        _another(_OUTCOME, {"result": 3}, "replay"),
    ),
)
