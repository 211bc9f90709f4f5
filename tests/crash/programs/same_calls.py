"""Many executions at once, each of four calls of one tool on four threads, two of them identical.

``permits``: how many bodies of each execution may end; the others wait to be killed.
"""

from __future__ import annotations

import os
import random
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Annotated

from pydantic import PlainSerializer
from support.children import arguments, say
from support.effect_log import EffectLog
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

GIVEN = arguments()
LOG = EffectLog(GIVEN["log"])
AGENT = "same-calls"
QUERIES = ["cats", "dogs", "cats", "birds"]

permits: defaultdict[str, threading.Semaphore] = defaultdict(
    lambda: threading.Semaphore(GIVEN["permits"])
)
guard = threading.Lock()


def encoded(query: str) -> str:
    """Takes a while, so that calls on several threads reach the kernel in any order."""
    threading.Event().wait(random.random() / 100)
    return query


@rebuno.tool
def search(query: Annotated[str, PlainSerializer(encoded)]) -> str:
    """Another result each time that it runs."""
    context = rebuno.execution()
    threading.Event().wait(random.random() / 50)
    with guard:
        permit = permits[context.id]
    if not permit.acquire(blocking=False):
        threading.Event().wait()
    return LOG.append(context.around[0])


def in_parallel() -> list[str]:
    return rebuno.parallel([(search, query) for query in QUERIES], max_workers=4)


def in_a_pool() -> list[str]:
    with rebuno.ThreadPoolExecutor(4) as pool:
        return list(pool.map(search, QUERIES))


HANDLERS: dict[str, Callable[[], list[str]]] = {"parallel": in_parallel, "map": in_a_pool}


def all_have_two(kernel: Kernel) -> bool:
    """Whether two results of every execution are recorded, and its other calls have begun."""
    found = kernel.list(agent_id=AGENT, limit=200).executions
    statuses = [sorted(step.status for step in kernel.list_steps(it.id)) for it in found]
    expected = ["executing"] * 2 + ["succeeded"] * 2
    return len(found) == GIVEN["executions"] and all(it == expected for it in statuses)


def main() -> None:
    outputs: dict[str, list[str]] = {}
    with Kernel(GIVEN["db"]) as kernel:

        def run(key: str) -> None:
            handler = HANDLERS[GIVEN["spread"]]
            outputs[key] = rebuno.run(handler, key=key, agent=AGENT, kernel=kernel)

        threads = [
            threading.Thread(target=run, args=(f"key-{n}",), daemon=True)
            for n in range(GIVEN["executions"])
        ]
        for thread in threads:
            thread.start()
        if GIVEN["permits"] < len(QUERIES):
            wait_until(lambda: all_have_two(kernel), "two results of each", 60)
            say("two results each")
            threading.Event().wait()
        for thread in threads:
            thread.join()
    say(outputs)


main()
os._exit(0)
