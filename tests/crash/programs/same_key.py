"""Runs an execution by key at a given moment, in several threads, and says when it got the
result."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from support.children import arguments, say
from support.effect_log import EffectLog
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

GIVEN = arguments()
LOG = EffectLog(GIVEN["log"])
THREADS = GIVEN["threads"]


@rebuno.tool
def slow() -> float:
    """Takes a second; when it ended, on the clock that all processes share."""
    LOG.append("slow")
    threading.Event().wait(1.0)
    return time.monotonic()


def handler() -> float:
    return slow()


def once(kernel: Kernel, barrier: threading.Barrier) -> dict[str, Any]:
    barrier.wait()
    ended = rebuno.run(handler, key="same", kernel=kernel)
    return {"ended": ended, "lag": time.monotonic() - ended}


if __name__ == "__main__":
    barrier = threading.Barrier(THREADS)
    with Kernel(GIVEN["db"]) as kernel, ThreadPoolExecutor(THREADS) as pool:
        say("ready")
        wait_until(Path(GIVEN["go"]).exists, "the word to begin")
        calls = [pool.submit(once, kernel, barrier) for _ in range(THREADS)]
        say([call.result() for call in calls])
