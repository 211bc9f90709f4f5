"""A pool that was used before a fork serves the parent and the child."""

from __future__ import annotations

import os

from support.children import arguments, say

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

GIVEN = arguments()
POOL = rebuno.ThreadPoolExecutor(2)


@rebuno.tool
def double(n: int) -> int:
    return 2 * n


def handler() -> list[int]:
    return [*POOL.map(double, [1, 1, 2]), *rebuno.parallel([(double, 3), (double, 3)])]


kernel = Kernel(GIVEN["db"])
before = rebuno.run(handler, agent="forks", kernel=kernel)
pid = os.fork()
after = rebuno.run(handler, agent="forks", kernel=kernel)
if pid == 0:
    os._exit(0 if after == before else 1)
_, status = os.waitpid(pid, 0)
say([before, after, os.waitstatus_to_exitcode(status)])
