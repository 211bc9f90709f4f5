"""Turns: identical calls that are handed to threads are submitted in the order of handing over.

A kernel counts identical calls in the order in which they arrive (protocol.md 6.3), and that count
is what a replay finds their results by. Bodies overlap as they like.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MethodType
from typing import Any, NamedTuple, TypeVar

__all__ = ["Turn", "Turns", "identity_of", "in_turn", "mark_call"]

T = TypeVar("T")

_MARK = "__rebuno_call__"
_FEWEST_KEPT = 64
_thread = threading.local()


class _Mark(NamedTuple):
    """On the callable of an effect: which call its arguments make."""

    owner: Callable[..., Any]
    identify: Callable[[tuple[Any, ...], Mapping[str, Any]], Hashable]


def mark_call(
    fn: Callable[..., Any], identify: Callable[[tuple[Any, ...], Mapping[str, Any]], Hashable]
) -> None:
    """Let turns be kept among the calls of ``fn``, an effect that is submitted once for each call.

    ``identify(args, kwargs)``: the same for calls that may have the same identity. It may raise
    what the call itself would.
    """
    setattr(fn, _MARK, _Mark(fn, identify))


def identity_of(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Hashable | None:
    """Which call it is, ``None`` for what is no effect. Raises ``TypeError`` for bad arguments."""
    while isinstance(fn, partial):
        args, kwargs, fn = (*fn.args, *args), {**fn.keywords, **kwargs}, fn.func
    if isinstance(fn, MethodType):
        args, fn = (fn.__self__, *args), fn.__func__
    mark: _Mark | None = getattr(fn, _MARK, None)
    if mark is None or mark.owner is not fn:  # ``functools.wraps`` copies marks to what wraps it.
        return None
    return mark.identify(args, kwargs)


class Turn:
    """The place of one call behind an identical one."""

    def __init__(self, before: Turn | None) -> None:
        self._before = before
        self._passed = threading.Event()

    @property
    def has_come(self) -> bool:
        """Whether the call before has been submitted, or never will be."""
        return self._before is None or self._before.passed

    def wait(self) -> None:
        """Wait until it has come."""
        if self._before is not None:
            self._before._passed.wait()
            self._before = None

    def pass_on(self) -> None:
        """The next one may go."""
        self._passed.set()

    @property
    def passed(self) -> bool:
        return self._passed.is_set()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """In the block, the first submit of the calling thread waits for its turn."""
        _thread.turn = self
        try:
            yield
        finally:
            _thread.turn = None
            self.pass_on()


class Turns:
    """Gives turns. Calls must be begun in the order in which they were given theirs."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._last: dict[Hashable, Turn] = {}
        self._most = _FEWEST_KEPT

    def turn(self, identity: Hashable | None) -> Turn:
        """The next turn of this very call; ``None`` is like no other."""
        if identity is None:
            return Turn(None)
        with self._guard:
            if len(self._last) >= self._most:  # Most of them are over.
                self._last = {call: turn for call, turn in self._last.items() if not turn.passed}
                self._most = max(2 * len(self._last), _FEWEST_KEPT)
            turn = Turn(self._last.get(identity))
            self._last[identity] = turn
            return turn


def in_turn(ask: Callable[[], T], move: Callable[[int], None]) -> T:
    """``ask`` in the turn of the calling thread's next submit, if it has one.

    ``move``: told -1 and 1 around the wait for it, in which the thread does nothing.
    """
    turn: Turn | None = getattr(_thread, "turn", None)
    if turn is None:
        return ask()
    _thread.turn = None
    if not turn.has_come:  # A thread that passes on at once is not to be taken for one that waits.
        move(-1)
        try:
            turn.wait()
        finally:
            move(1)
    try:
        return ask()
    finally:
        turn.pass_on()
