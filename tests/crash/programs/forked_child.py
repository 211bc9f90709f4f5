"""A handler that forks in a body: the child leaves it in some way, the parent goes on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from support.children import arguments, say

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

given = arguments()
parent = os.getpid()


@rebuno.tool(idempotency="at_most_once")
def work() -> str:
    child = os.fork()
    if child == 0:
        if given["leaves"] == "exit":
            sys.exit(0)
        if given["leaves"] == "raise":
            raise RuntimeError("in the child")
        return "the child's"
    _, status = os.waitpid(child, 0)
    say({"child": os.waitstatus_to_exitcode(status)})
    Path(given["file"]).touch()
    return "the parent's"


try:
    with Kernel(given["db"]) as kernel:
        say({"got": rebuno.run(lambda: work(), key="k", agent="forks", kernel=kernel)})
except BaseException as error:
    if os.getpid() == parent:
        raise
    # The child must not go on as if it were the parent.
    os._exit(7 if isinstance(error, rebuno.NoActiveExecution) else 8)
