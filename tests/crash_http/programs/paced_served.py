"""Serves a handler of effects one after another, whose bodies take as long as the input says."""

from __future__ import annotations

import threading
from pathlib import Path

from serving import serve
from support.children import arguments, say
from support.effect_log import EffectLog

import rebuno_sync as rebuno

GIVEN = arguments()


@rebuno.tool
def note(label: str) -> dict[str, str]:
    """Leaves its line, and then takes its time."""
    running = rebuno.execution()
    token = EffectLog(Path(GIVEN["logs"]) / running.id).append(label)
    say({"body": label, "execution": running.id, "attempt": running.dispatch_attempt})
    threading.Event().wait(running.input["seconds"])
    return {label: token}


@rebuno.tool(idempotency="at_most_once")
def charge(label: str) -> dict[str, str]:
    running = rebuno.execution()
    token = EffectLog(Path(GIVEN["logs"]) / running.id).append(label)
    threading.Event().wait(running.input["seconds"])
    return {label: token}


def handler(effects: int, seconds: float) -> dict[str, str]:
    report: dict[str, str] = {}
    try:
        for number in range(effects):
            effect = charge if number % 4 == 3 else note
            report |= effect(f"effect-{number}")
    except rebuno.Signal as signal:
        say({"raised": type(signal).__name__, "execution": rebuno.execution().id})
        try:
            note("after the end")
        except rebuno.Signal as again:
            say({"again": type(again).__name__, "execution": rebuno.execution().id})
        raise
    return report


serve(handler)
