"""Ends while bodies hang: in a pool, in ``parallel``, and in a pool that nobody shuts down."""

from __future__ import annotations

import threading

from support.children import arguments, say

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

GIVEN = arguments()
begun = threading.Semaphore(0)


@rebuno.tool
def hang() -> None:
    begun.release()
    threading.Event().wait()


def handler() -> None:
    if GIVEN["where"] == "pool":
        rebuno.ThreadPoolExecutor(1).submit(hang).result()
    else:
        rebuno.parallel([hang])


kernel = Kernel(GIVEN["db"])
threading.Thread(
    target=lambda: rebuno.run(handler, agent="hangs", kernel=kernel), daemon=True
).start()
begun.acquire()
say("ends now")
