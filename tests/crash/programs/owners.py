"""Processes that hold a lease, and what may happen to them. ``GIVEN["act"]`` chooses."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from support.children import arguments, say
from support.effect_log import EffectLog
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel

GIVEN = arguments()
LOG = EffectLog(GIVEN["log"])


@rebuno.tool
def effect(label: str) -> str:
    LOG.append(label)
    return label


@rebuno.tool
def hold(label: str) -> str:
    """In the process that is told to: never ends. In others: an effect like any."""
    LOG.append(label)
    if GIVEN["act"] == "hold":
        say("holding")
        wait_for_ever()
    if GIVEN["act"] == "fork and hold":
        child = os.fork()
        if child == 0:
            wait_for_ever()
        say({"child": child})
        wait_for_ever()
    if GIVEN["act"] == "fork, use and hold":
        child = os.fork()
        if child == 0:
            with Kernel(GIVEN["db"]) as kernel:
                rebuno.run(other, key=f"of the child {os.getpid()}", kernel=kernel)
                say({"child": os.getpid()})
                wait_for_ever()
        wait_for_ever()
    if GIVEN["act"] == "hold until told":
        say("holding")
        wait_until(Path(GIVEN["go"]).exists, "the word to go on", seconds=60)
    return label


def wait_for_ever() -> None:
    while True:
        signal.pause()


def other() -> str:
    return effect("of-the-child")


def handler() -> list[str]:
    return [effect("first"), hold("held"), effect("last")]


def loop(effects: int) -> list[str]:
    """Dies before the effect that it is told to die at."""
    done = []
    for number in range(effects):
        if number == GIVEN.get("die_at"):
            os.kill(os.getpid(), signal.SIGKILL)
        done.append(effect(f"effect-{number}"))
    return done


def claim_under_boot() -> None:
    """Hold the lease of a new execution, on a machine that has booted as ``GIVEN["boot"]``."""
    clock = ManualClock()
    clock.reboot(GIVEN["boot"])
    with Kernel(GIVEN["db"], clock=clock) as kernel:
        found = kernel.list().executions
        if not found:
            kernel.register_agent("agent")
        execution = found[0] if found else kernel.create("agent")
        claim = kernel.claim(execution.id)
        say(None if claim is None else claim.lease.attempt)
        if GIVEN["act"] == "claim and hold":
            wait_for_ever()


def main() -> None:
    if "claim" in GIVEN["act"]:
        claim_under_boot()
        return
    kernel = Kernel(
        GIVEN["db"],
        lease_timeout=GIVEN.get("lease_timeout", 120.0),
        max_attempts=GIVEN.get("max_attempts", 5),
    )
    say("begun")
    try:
        if "effects" in GIVEN:
            output = rebuno.run(loop, {"effects": GIVEN["effects"]}, key="long", kernel=kernel)
        else:
            output = rebuno.run(handler, key="owned", kernel=kernel)
    except rebuno.ExecutionFailed as error:
        say({"failed": error.reason})
        return
    say({"output": output, "at": time.monotonic()})


if __name__ == "__main__":
    main()
