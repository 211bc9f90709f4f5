"""Processes that fork while they use a kernel. ``GIVEN["act"]`` chooses."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from support.children import arguments, say
from support.effect_log import EffectLog

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

GIVEN = arguments()
LOG = EffectLog(GIVEN["log"])
LIMIT_SECONDS = 30
"""A child that takes longer hangs, and dies of SIGALRM."""


@rebuno.tool
def effect(label: str) -> str:
    return label


def handler(label: str) -> str:
    return effect(label)


def run_one(kernel: Kernel, label: str) -> None:
    """Run one execution and note what was acknowledged."""
    assert rebuno.run(handler, {"label": label}, key=label, kernel=kernel) == label
    LOG.append(label)


def fork(work: Callable[[], None]) -> int:
    """Do ``work`` in a forked child; its pid. The child's status tells whether all went well."""
    pid = os.fork()
    if pid:
        return pid
    signal.alarm(LIMIT_SECONDS)
    try:
        work()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def statuses(pids: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def forks_of_a_busy_process() -> None:
    """Threads run executions all the time, and forks happen in the middle of that."""
    kernel = Kernel(GIVEN["db"])
    stop = threading.Event()
    failures: list[BaseException] = []

    def work_on(name: str) -> None:
        try:
            for number in count():
                if stop.is_set():
                    return
                run_one(kernel, f"{name}-{number}")
        except BaseException as error:
            failures.append(error)

    def in_child() -> None:
        name = f"child-{os.getpid()}"
        run_one(kernel, f"{name}-inherited")
        with Kernel(GIVEN["db"]) as same:
            run_one(same, f"{name}-same")
        with Kernel(GIVEN["other"]) as other:
            rebuno.run(handler, {"label": name}, key=name, kernel=other)

    threads = [threading.Thread(target=work_on, args=(f"thread-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    ended = []
    with ThreadPoolExecutor(2) as pool:  # Forks meet one another, too.
        for _ in range(GIVEN["forks"] // 4):
            forked = [pool.submit(fork, in_child) for _ in range(3)]
            ended += statuses([fork(in_child), *(future.result() for future in forked)])
    stop.set()
    for thread in threads:
        thread.join()
    kernel.close()
    say({"statuses": ended, "failures": [repr(failure) for failure in failures]})


def in_pool(label: str) -> str:
    return effect(label)


def handler_with_a_pool() -> list[str]:
    effect("before")
    with multiprocessing.get_context("fork").Pool(2) as pool:
        try:
            pool.map(in_pool, ["a", "b"])
        except rebuno.NoActiveExecution as error:
            return [effect("after"), str(error)]
    return ["no error"]


def pool_in_a_handler() -> None:
    with Kernel(GIVEN["db"]) as kernel:
        say(rebuno.run(handler_with_a_pool, kernel=kernel))


def parent_and_children() -> None:
    """One process uses the kernel, then it and its children do, all at once."""
    kernel = Kernel(GIVEN["db"])
    run_one(kernel, "before")

    def many(name: str) -> None:
        for number in range(GIVEN["executions"]):
            run_one(kernel, f"{name}-{number}")

    pids = [fork(lambda n=n: many(f"child-{n}")) for n in range(4)]  # type: ignore[misc]
    many("parent")
    ended = statuses(pids)
    kernel.close()
    say(ended)


def write_until_told(kernel: Kernel, name: str) -> None:
    for number in count():
        if Path(GIVEN["stop"]).exists():
            return
        run_one(kernel, f"{name}-{number}")


def writer() -> None:
    with Kernel(GIVEN["db"]) as kernel:
        write_until_told(kernel, GIVEN["name"])
    say("stopped")


def writer_with_a_child() -> None:
    kernel = Kernel(GIVEN["db"])
    run_one(kernel, f"{GIVEN['name']}-before")
    child = fork(lambda: write_until_told(kernel, f"{GIVEN['name']}-child"))
    say({"child": child})
    write_until_told(kernel, GIVEN["name"])


def short_writer() -> None:
    with Kernel(GIVEN["db"]) as kernel:
        for number in range(3):
            run_one(kernel, f"{GIVEN['name']}-{number}")
    say("done")


if __name__ == "__main__":
    {
        "busy": forks_of_a_busy_process,
        "pool": pool_in_a_handler,
        "children": parent_and_children,
        "writer": writer,
        "writer with a child": writer_with_a_child,
        "short writer": short_writer,
    }[GIVEN["act"]]()
