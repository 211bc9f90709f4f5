"""Runs handlers under the names that they are given by default, and says those."""

from __future__ import annotations

import json
import multiprocessing
import sys

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel


def handler() -> str:
    return rebuno.execution().agent_id


class Holder:
    def method(self) -> str:
        return rebuno.execution().agent_id


def once(db: str) -> list[str]:
    with Kernel(db) as kernel:
        return [
            rebuno.run(handler, kernel=kernel),
            rebuno.run(Holder().method, kernel=kernel),
        ]


if __name__ == "__main__":
    said = [once(sys.argv[1])]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        said.append(pool.apply(once, (sys.argv[1],)))
        pool.close()
        pool.join()
    sys.stdout.write(json.dumps(said))
