"""Runs with the kernel that ``REBUNO_DB`` names, and says what was logged about its file."""

from __future__ import annotations

import logging
import os

from support.children import arguments, say

import rebuno_sync as rebuno


def handler(n: int) -> int:
    return n


if __name__ == "__main__":
    if arguments()["named"]:
        os.environ["REBUNO_DB"] = "named.db"
    os.chdir(arguments()["folder"])
    records: list[str] = []
    keep = logging.Handler()
    keep.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("rebuno_sync").addHandler(keep)
    logging.getLogger("rebuno_sync").setLevel(logging.INFO)
    for n in range(3):
        rebuno.run(handler, {"n": n})
    say([record for record in records if "recorded in" in record])
