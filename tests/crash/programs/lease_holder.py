"""A process that runs one long body, and does something to the lock file while it lasts."""

from __future__ import annotations

import shutil
from pathlib import Path

from support.children import arguments, say
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

given = arguments()
lock = Path(given["db"] + "-lock")


@rebuno.tool
def work() -> str:
    say({"body": given["name"]})
    if given["does"] == "copy":
        shutil.copy(lock, lock.with_suffix(".copy"))
    elif given["does"] == "delete":
        lock.unlink()
    say({"did": given["does"]})
    wait_until(lambda: Path(given["go"]).exists(), "leave to go on", 20)
    return given["name"]


def handler() -> str:
    return work()


with Kernel(given["db"]) as kernel:
    if given["does"] == "delete":
        # A claim of its own after the deletion, as any busy process makes them.
        rebuno.run(lambda: 1, agent="another", kernel=kernel)
    say({"got": rebuno.run(handler, key="k", agent="holders", kernel=kernel)})
