"""Runs a key again that has failed, and says what came of it."""

from __future__ import annotations

from pathlib import Path

from support.children import arguments, say

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

FOLDER = Path(arguments()["folder"])


@rebuno.tool
def flaky() -> str:
    with (FOLDER / "tries").open("a") as tries:
        tries.write(".")
    if not (FOLDER / "mended").exists():
        raise ValueError("not yet")
    return "done"


def handler() -> str:
    return flaky()


if __name__ == "__main__":
    with Kernel(FOLDER / "kernel.db") as kernel:
        try:
            say(rebuno.run(handler, key="k", agent="a", kernel=kernel, retry_failed=True))
        except rebuno.ExecutionFailed as error:
            say(str(error))
