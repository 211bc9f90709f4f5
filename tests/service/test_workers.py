"""The threads that run deliveries."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.attempts import background
from support.children import ChildScript
from support.no_threads import no_threads
from support.waiting import wait_until

from rebuno_sync.workers import Slot, Workers

PROGRAMS = Path(__file__).parent / "programs"


class Crew:
    """Workers whose items are callables, and the most that ran at once."""

    def __init__(self, size: int, longest_queue: int = 1000) -> None:
        self.workers: Workers[Any] = Workers(
            "of-the-test", self._run, size=size, longest_queue=longest_queue
        )
        self._guard = threading.Lock()
        self._running = 0
        self.most = 0
        self.slots: list[Slot] = []

    def _run(self, item: Any, slot: Slot) -> None:
        with self._guard:
            self._running += 1
            self.most = max(self.most, self._running)
            self.slots.append(slot)
        try:
            item()
        finally:
            with self._guard:
                self._running -= 1


def threads() -> int:
    return sum(thread.name == "of-the-test" for thread in threading.enumerate())


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    yield gate
    gate.set()


def test_at_most_so_many_run_at_once_and_all_are_run(gate: threading.Event) -> None:
    """Offered faster than threads start, each free slot is used."""
    crew = Crew(4)
    done: list[int] = []

    def item(number: int) -> Any:
        def work() -> None:
            gate.wait(20)
            done.append(number)

        return work

    assert all(crew.workers.offer(item(number)) for number in range(20))
    wait_until(lambda: crew.most == 4, "four running at once")
    gate.set()
    assert crew.workers.join(20)
    assert (sorted(done), crew.most) == (list(range(20)), 4)
    crew.workers.close()


def test_no_thread_starts_before_there_is_work_and_one_is_used_again() -> None:
    before = threads()
    crew = Crew(8)
    assert threads() == before
    for _ in range(20):
        crew.workers.offer(lambda: None)
        assert crew.workers.join(20)
        wait_until(lambda: crew.workers._idle >= 1, "the thread waiting again")
    assert threads() == before + 1
    crew.workers.close()
    wait_until(lambda: threads() == before, "the end of the thread")


def leave() -> None:
    raise SystemExit


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_fails_costs_no_slot(caplog: pytest.LogCaptureFixture) -> None:
    """Neither an exception nor SystemExit."""
    before = threads()
    crew = Crew(1)
    for _ in range(3):
        crew.workers.offer(lambda: 1 / 0)
        crew.workers.offer(leave)
    done = threading.Event()
    crew.workers.offer(done.set)
    assert done.wait(20)
    assert crew.workers.join(20)
    assert caplog.text.count("ZeroDivisionError: ") == 3
    crew.workers.close()
    wait_until(lambda: threads() == before, "the end of the threads")


def test_a_slot_that_is_surrendered_goes_to_what_waits(gate: threading.Event) -> None:
    """Once, however often; the thread that had it ends with its work."""
    crew = Crew(1)
    crew.workers.offer(lambda: gate.wait(20))
    wait_until(lambda: crew.slots, "the first running")
    second, third = threading.Event(), threading.Event()
    crew.workers.offer(second.set)
    crew.workers.offer(third.set)
    for _ in range(3):
        crew.slots[0].surrender()
    assert second.wait(20)
    assert third.wait(20)
    assert not crew.workers.join(0)
    gate.set()
    assert crew.workers.join(20)
    assert crew.most == 2
    crew.workers.close()


def test_a_full_queue_refuses(gate: threading.Event) -> None:
    crew = Crew(1, longest_queue=1)
    assert crew.workers.offer(lambda: gate.wait(20))
    wait_until(lambda: crew.slots, "the first running")
    assert crew.workers.offer(lambda: None)
    assert not crew.workers.offer(lambda: None)
    gate.set()
    crew.workers.join(20)
    crew.workers.close()


def test_closing_gives_back_what_was_not_begun(gate: threading.Event) -> None:
    """What runs goes on, and ``join`` waits for it."""
    crew = Crew(1)
    crew.workers.offer(lambda: gate.wait(20))
    wait_until(lambda: crew.slots, "the first running")
    waiting = [lambda: None, lambda: None]
    for item in waiting:
        crew.workers.offer(item)
    assert crew.workers.close() == waiting
    assert not crew.workers.offer(lambda: None)
    with background(lambda: crew.workers.join(20)) as joining:
        gate.set()
        assert joining.result()


def test_what_no_thread_can_take_is_refused_and_not_kept() -> None:
    """Where one runs already it will be its turn; where none does, whoever offers is told."""
    crew = Crew(2)
    done: list[str] = []
    with no_threads(), pytest.raises(RuntimeError, match="thread"):
        crew.workers.offer(lambda: done.append("refused"))
    gate = threading.Event()
    assert crew.workers.offer(lambda: gate.wait(20))
    wait_until(lambda: threads() == 1, "the thread")
    with no_threads():
        assert crew.workers.offer(lambda: done.append("queued"))
    gate.set()
    assert crew.workers.join(20)
    assert done == ["queued"]


def test_asking_for_a_stack_never_stops_the_process(tmp_path: Path) -> None:
    """Whatever threads start and end meanwhile, and though the interpreter collects garbage."""
    assert ChildScript(PROGRAMS / "stacks.py", tmp_path).run() == {"asked": True, "collects": True}
