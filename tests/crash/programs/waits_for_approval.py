"""Runs an execution by key whose only effect needs an approval; says how it ended."""

from __future__ import annotations

from support.children import arguments, say
from support.effect_log import EffectLog

import rebuno_sync as rebuno
from rebuno_sync.errors import ExecutionCancelled
from rebuno_sync.kernel import Kernel

GIVEN = arguments()
LOG = EffectLog(GIVEN["log"])


@rebuno.tool(idempotency="at_most_once")
def charge(key: str) -> str:
    LOG.append(key)
    return "charged"


def handler(key: str) -> str:
    return charge(key)


if __name__ == "__main__":
    with Kernel(GIVEN["db"]) as kernel:
        key = GIVEN["key"]
        try:
            say(rebuno.run(handler, {"key": key}, key=key, agent="agent", kernel=kernel))
        except ExecutionCancelled as error:
            say(f"cancelled: {error.reason}")
