"""A small handler on a kernel whose process dies just before or just after its n-th commit."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from support.children import arguments, say
from support.effect_log import EffectLog

import rebuno_sync as rebuno
from rebuno_sync.clock import SYSTEM
from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel.store import Database, Store

GIVEN = arguments()
LOG = EffectLog(GIVEN["log"])

Report = dict[str, str]


class MortalDatabase(Database):
    """Counts the commits of this process, and ends it at one of them."""

    commits = 0

    def commit(self) -> None:
        MortalDatabase.commits += 1
        self._die_at("before")
        super().commit()
        self._die_at("after")

    def _die_at(self, side: str) -> None:
        if GIVEN["die"] == [side, MortalDatabase.commits]:
            os.kill(os.getpid(), signal.SIGKILL)


def happen(label: str) -> Report:
    return {label: LOG.append(label)}


@rebuno.tool
def note(label: str) -> Report:
    return happen(label)


@rebuno.tool(idempotency="at_most_once")
def charge(label: str) -> Report:
    return happen(label)


@rebuno.tool
def fail(label: str) -> Report:
    happen(label)
    raise ValueError(label)


@rebuno.tool
def outer(label: str) -> Report:
    return note("inner") | attempt(charge, "inner-pay") | happen(label)


def attempt(effect: object, label: str) -> Report:
    try:
        return effect(label)  # type: ignore[operator, no-any-return]
    except rebuno.ToolError as error:
        return {label: error.reason or type(error.__cause__).__name__}


def handler() -> Report:
    report = note("note") | attempt(charge, "pay") | outer("outer") | attempt(fail, "fail")
    return report | rebuno.step("local", happen, {"label": "local"}) | attempt(charge, "last")


if __name__ == "__main__":
    store = Store.open(Path(GIVEN["db"]), SYSTEM, database_class=MortalDatabase)
    with Kernel(GIVEN["db"]) as kernel:
        rebuno.run(handler, key="boundaries", kernel=kernel)
    store.close()
    say(MortalDatabase.commits)
