"""Runs many executions and says how many bytes of objects each leaves behind."""

from __future__ import annotations

import contextlib
import gc
import tracemalloc

from support.children import arguments, say

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel


@rebuno.tool
def double(n: int) -> int:
    return 2 * n


@rebuno.tool
def fail(n: int) -> None:
    raise ValueError(n)


def handler(n: int, end: str) -> int:
    rebuno.step("local", lambda: n)
    value = double(n)
    with contextlib.suppress(rebuno.ToolError):
        fail(n)
    if end == "fails":
        raise RuntimeError("as it should")
    if end == "is cancelled":
        KERNEL.cancel(rebuno.execution().id)
        double(n)
    return value


def one(n: int) -> None:
    end = ("completes", "fails", "is cancelled", "completes")[n % 4]
    with contextlib.suppress(rebuno.ExecutionFailed, rebuno.ExecutionCancelled):
        rebuno.run(handler, {"n": n, "end": end}, key=f"key-{n}", kernel=KERNEL)


def traced_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def outer(warm: int, count: int) -> float:
    """All of them inside one execution, which holds its lease all the time.

    The lesser growth of two rounds: what the interpreter enlarges now and then shows in one only.
    """
    for n in range(warm):
        one(n)
    tracemalloc.start()
    marks = [traced_bytes()]
    for start in (warm, warm + count):
        for n in range(start, start + count):
            one(n)
        marks.append(traced_bytes())
    return min(marks[1] - marks[0], marks[2] - marks[1]) / count


if __name__ == "__main__":
    with Kernel(arguments()["db"]) as KERNEL:
        given = {"warm": arguments()["warm"], "count": arguments()["count"]}
        say(rebuno.run(outer, given, kernel=KERNEL))
