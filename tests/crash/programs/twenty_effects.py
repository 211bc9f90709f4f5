"""A handler of twenty effects of every sort; each leaves a line in a file before it returns.

``mixed`` has effects that must not run twice among them, and each run of a body gives another
result; without it all are safe to retry and give the same.
"""

from __future__ import annotations

import threading
from pathlib import Path

from support.children import arguments, say
from support.effect_log import EffectLog

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

GIVEN = arguments()
BODY_SECONDS = 0.01

Report = dict[str, str]
"""A label of an effect -> the token of the run of its body whose result counts, or what it
raised."""


def log() -> EffectLog:
    """Of the one execution of this process, or where it serves many, of the one that runs."""
    return EffectLog(GIVEN.get("log") or Path(GIVEN["logs"]) / rebuno.execution().id)


def happen(label: str) -> Report:
    """The body of every effect: takes a little while before and after what can be seen of it."""
    threading.Event().wait(BODY_SECONDS / 2)
    token = log().append(label, "" if rebuno.execution().input["mixed"] else f"result-of-{label}")
    threading.Event().wait(BODY_SECONDS / 2)
    return {label: token}


@rebuno.tool
def note(label: str) -> Report:
    return happen(label)


@rebuno.tool(idempotency="at_most_once")
def charge(label: str) -> Report:
    return happen(label)


@rebuno.tool
def fail(label: str) -> Report:
    happen(label)
    raise ValueError(f"{label} failed")


@rebuno.tool
def both(label: str, mixed: bool) -> Report:
    """A tool that calls others."""
    report = note(f"{label}.first")
    report |= attempt(charge if mixed else note, f"{label}.second")
    return report | happen(label)


@rebuno.tool
def deep(label: str, mixed: bool) -> Report:
    report = both(f"{label}.inner", mixed)
    return report | happen(label)


def attempt(effect: object, label: str) -> Report:
    """Call an effect and go on whatever becomes of it."""
    try:
        return effect(label)  # type: ignore[operator, no-any-return]
    except rebuno.ToolError as error:
        return {label: error.reason or type(error.__cause__).__name__}


def local(label: str) -> Report:
    return rebuno.step("local", happen, {"label": label})


def handler(mixed: bool) -> Report:
    say("running")
    pay = charge if mixed else note
    report = note("note-1") | attempt(pay, "pay-1") | local("local-1")  # 3 effects
    report |= both("both", mixed)  # 3
    with rebuno.ThreadPoolExecutor(4) as pool:  # 4
        calls = [(note, "pool-1"), (pay, "pool-2"), (note, "pool-3"), (pay, "pool-4")]
        for part in pool.map(lambda call: attempt(*call), calls):
            report |= part
    report |= attempt(fail, "fail")  # 1
    report |= deep("deep", mixed)  # 4
    report |= attempt(pay, "pay-2") | local("local-2") | note("note-2")  # 3
    return report | attempt(pay, "pay-3") | note("note-3")  # 2


if __name__ == "__main__":
    say("begun")
    with Kernel(GIVEN["db"], max_attempts=1000) as kernel:
        rebuno.run(handler, {"mixed": GIVEN["mixed"]}, key="twenty", kernel=kernel)
    say("ended")
