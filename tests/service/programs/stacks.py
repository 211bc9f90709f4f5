"""Asks for stacks while threads start and end and garbage is collected; says that it could."""

import gc
import threading
import time

from support.children import say

from rebuno_sync.workers import stack_of


class Garbage:
    """Found by the collector alone; its end lets other threads go on."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        time.sleep(0)


def start_and_end() -> None:
    while not over.is_set():
        thread = threading.Thread(target=Garbage)
        thread.start()
        thread.join()


over = threading.Event()
limit = threading.Timer(1.0, over.set)
limit.start()
starting = [threading.Thread(target=start_and_end) for _ in range(4)]
for thread in starting:
    thread.start()
gc.set_threshold(3, 2, 2)
asked = 0
while not over.is_set():
    Garbage()
    assert "stacks.py" in stack_of(threading.get_ident())
    asked += 1
say({"asked": asked > 0, "collects": gc.isenabled()})
