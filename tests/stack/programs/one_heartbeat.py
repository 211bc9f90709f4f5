"""Says which threads the package runs: after its import, while it runs, and in a forked child."""

from __future__ import annotations

import os
import threading

from support.children import arguments, say

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel


def names() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate())


def heartbeats() -> int:
    return names().count("rebuno-heartbeat")


@rebuno.tool
def look() -> int:
    return heartbeats()


def handler(n: int) -> int:
    return look()


if __name__ == "__main__":
    say(names())
    with Kernel(arguments()["db"]) as kernel:
        counts = []

        def one(n: int) -> None:
            counts.append(rebuno.run(handler, {"n": n}, kernel=kernel))

        threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        say(counts)
        if arguments()["fork"]:
            child = os.fork()
            if child == 0:
                before = heartbeats()
                count = rebuno.run(handler, {"n": 9}, kernel=kernel)
                os._exit(0 if (before, count) == (0, 1) else 1)
            say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
