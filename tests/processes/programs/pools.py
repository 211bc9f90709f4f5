"""A hundred executions in a ``multiprocessing`` pool. ``argv``: the start method."""

import json
import multiprocessing
import sys

from everything import run, use_once

if __name__ == "__main__":
    use_once()
    with multiprocessing.get_context(sys.argv[1]).Pool(4) as pool:
        results = pool.map(run, range(100), chunksize=1)
    sys.stdout.write(json.dumps(results))
