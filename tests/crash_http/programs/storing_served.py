"""Serves a handler with a result that some kernels cannot store, and an argument likewise."""

from __future__ import annotations

from pathlib import Path

from serving import serve
from support.children import arguments
from support.effect_log import EffectLog

import rebuno_sync as rebuno

GIVEN = arguments()
NUL = "before\0after"


def happen(label: str) -> None:
    EffectLog(Path(GIVEN["logs"]) / rebuno.execution().id).append(label)


@rebuno.tool
def give(label: str, text: str) -> str:
    happen(label)
    return NUL if text == "NUL" else text


@rebuno.tool(idempotency="at_most_once")
def give_once(label: str, text: str) -> str:
    happen(label)
    return NUL if text == "NUL" else text


def handler(once: bool) -> dict[str, str]:
    report: dict[str, str] = {}
    effect = give_once if once else give
    for label, text in (("first", "plain"), ("result", "NUL"), ("argument", NUL), ("last", "!")):
        try:
            report[label] = effect(label, text)
        except rebuno.ToolError as error:
            report[label] = error.message
        except rebuno.APIError as error:
            report[label] = f"{type(error).__name__} {error.status_code}"
    return report


serve(handler)
