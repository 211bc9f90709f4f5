"""Serves a handler that waits between two effects: for time, or for a person."""

from __future__ import annotations

from pathlib import Path

from serving import serve
from support.children import arguments
from support.effect_log import EffectLog

import rebuno_sync as rebuno

GIVEN = arguments()


def leave_a_line(label: str) -> str:
    return EffectLog(Path(GIVEN["logs"]) / rebuno.execution().id).append(label)


@rebuno.tool
def note(label: str) -> str:
    return leave_a_line(label)


@rebuno.tool(idempotency="at_most_once")
def charge() -> str:
    return leave_a_line("charge")


def handler(seconds: float) -> list[str]:
    """``seconds``: how long it sleeps; 0 to charge, which a person is asked for, instead."""
    told = [note("before")]
    if seconds:
        rebuno.sleep(seconds)
    else:
        told.append(charge())
    return [*told, note("after")]


serve(handler)
