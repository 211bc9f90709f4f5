"""What the kernel keeps in memory of a lease that it claimed for a handler in this process.

Occurrence counters (protocol.md 6.3) belong to one attempt, and all of its submits come through
the process that claimed it, so they need no table.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..types import LeaseKey

__all__ = ["Attempt", "Attempts"]

_Call = tuple[str, str, str]


class Attempt:
    """One claimed lease: which calls it has made, and whether any recorded step is still unmet."""

    def __init__(self, recorded: int) -> None:
        self._free = threading.Condition(threading.Lock())
        self._next: dict[_Call, int] = {}
        self._busy: set[_Call] = set()
        self._unmet = recorded

    @property
    def may_meet_recorded(self) -> bool:
        """Whether a submit can still meet a step of an earlier attempt."""
        return self._unmet > 0

    def met_recorded(self) -> None:
        with self._free:
            self._unmet -= 1

    @contextmanager
    def turn(self, call: _Call) -> Iterator[int]:
        """The occurrence of the next such call; identical calls wait for one another.

        Which of them comes first decides who gets which recorded result, so none may overtake
        another between its place and its decision. The place is used up by ``consume`` only.
        """
        with self._free:
            while call in self._busy:
                self._free.wait()
            self._busy.add(call)
            place = self._next.get(call, 0)
        try:
            yield place
        finally:
            with self._free:
                self._busy.discard(call)
                self._free.notify_all()

    def consume(self, call: _Call) -> None:
        """The decision was recorded; only whoever has the turn calls this."""
        self._next[call] = self._next.get(call, 0) + 1


class Attempts:
    """The attempts that this process claimed and that have not ended."""

    def __init__(self) -> None:
        self._attempts: dict[LeaseKey, Attempt] = {}

    def start(self, lease: LeaseKey, recorded: int) -> None:
        self._attempts[lease] = Attempt(recorded)

    def get(self, lease: LeaseKey) -> Attempt | None:
        return self._attempts.get(lease)

    def end(self, lease: LeaseKey) -> None:
        self._attempts.pop(lease, None)
