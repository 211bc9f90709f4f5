"""A hundred executions in each of four children that ``os.fork`` made of a process that has used
everything; says what they returned."""

import json
import os
import signal
import sys

from everything import run, use_once

CHILDREN, REQUESTS = 4, 100


def work(child: int) -> None:
    """In a child: say the results on its pipe."""
    signal.alarm(100)
    results = [run(number) for number in range(child * REQUESTS, (child + 1) * REQUESTS)]
    with os.fdopen(pipes[child][1], "w") as pipe:
        json.dump(results, pipe)


if __name__ == "__main__":
    use_once()
    pipes = [os.pipe() for _ in range(CHILDREN)]
    pids = []
    for child in range(CHILDREN):
        pid = os.fork()
        if not pid:
            try:
                work(child)
            except BaseException as error:
                sys.stderr.write(f"{error!r}\n")
                os._exit(1)
            os._exit(0)
        pids.append(pid)
    results = []
    for reading, writing in pipes:
        os.close(writing)
        with os.fdopen(reading) as pipe:
            results.append(json.loads(pipe.read() or "null"))
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    here = run(-1 - os.getpid())  # The parent goes on too.
    sys.stdout.write(json.dumps({"statuses": statuses, "results": results, "here": here}))
