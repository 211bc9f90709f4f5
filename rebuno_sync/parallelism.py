"""``parallel``: several calls at once, in threads of their own."""

from __future__ import annotations

import concurrent.futures
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from .context import current
from .pool import ThreadPoolExecutor
from .turns import identity_of

__all__ = ["parallel"]

_MOST_WORKERS = 32

_Call = Callable[[], Any] | tuple[Any, ...]


def parallel(calls: Iterable[_Call], *, max_workers: int | None = None) -> list[Any]:
    """Perform several calls at once, and return their results in order.

    Each of ``calls`` is a tuple of a callable and its arguments, ``(search, "cats", 5)``, or
    anything that is called without arguments: a ``functools.partial``, a lambda.
    ``max_workers``: how many run at once, at most 32 unless given.

    Identical calls of a tool keep their places across resumes, in the order of ``calls``; effects
    within other callables get theirs in order of arrival.

    The first error, or signal, is raised when the calls that were running have ended; those that
    had not begun never are. Raises ``TypeError`` for what is no call, or has arguments that it
    does not take, before anything begins; ``NoActiveExecution`` outside an execution.
    """
    context = current("parallel()")
    context.check()
    found = [_call(call, f"calls[{index}]") for index, call in enumerate(_listed(calls))]
    if max_workers is None:
        max_workers = min(len(found), _MOST_WORKERS)
    elif isinstance(max_workers, bool) or not isinstance(max_workers, int):
        raise TypeError(f"max_workers must be a number of threads, not {max_workers!r}")
    elif max_workers < 1:
        raise ValueError(f"max_workers must be at least 1, not {max_workers}")
    if not found:
        return []
    group = _Group(max_workers)
    context.past.move(-1)  # This thread meets nothing while it waits.
    try:
        group.perform(found)
    finally:
        context.past.move(1)
    context.check()
    return group.results()


def _listed(calls: object) -> list[object]:
    if isinstance(calls, str | bytes | dict) or not isinstance(calls, Iterable):
        raise TypeError(f"calls must be a list of calls, not {calls!r}")
    return list(calls)


def _call(call: object, where: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The callable and its arguments; raises ``TypeError`` for what is no call."""
    fn, arguments = (call[0], call[1:]) if isinstance(call, tuple) and call else (call, ())
    if not callable(fn):
        raise TypeError(
            f"{where} is {call!r}, which is no call: write (tool, argument, ...), a"
            " functools.partial or a lambda; tool(argument) would already be its result"
        )
    inner, given = fn, arguments
    keywords: dict[str, Any] = {}
    while isinstance(inner, functools.partial):
        given, keywords = (*inner.args, *given), {**inner.keywords, **keywords}
        inner = inner.func
    if inspect.iscoroutinefunction(inner):
        raise TypeError(f"{where} is an async function; rebuno_sync runs blocking code")
    try:
        is_tool = identity_of(inner, given, keywords) is not None
    except TypeError as error:
        raise TypeError(f"{where}: {error}") from error
    if not is_tool:
        _check_arguments(inner, given, keywords, where)
    return fn, arguments


def _check_arguments(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], where: str
) -> None:
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # Of a builtin, say.
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{where}: {fn!r} does not take these arguments: {error}") from None


class _Group:
    """Calls that end together."""

    def __init__(self, max_workers: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers, "rebuno-parallel")
        self._futures: list[concurrent.futures.Future[Any]] = []
        self._failed: list[concurrent.futures.Future[Any]] = []

    def perform(self, calls: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> None:
        try:
            for fn, arguments in calls:
                if self._failed:
                    break
                future = self._pool.submit(fn, *arguments)
                self._futures.append(future)
                future.add_done_callback(self._ended)
            concurrent.futures.wait(self._futures)
        finally:
            # After an interrupt in this thread some may still run; the attempt waits for them.
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _ended(self, future: concurrent.futures.Future[Any]) -> None:
        """In the thread in which it failed: whatever has not begun is not to begin."""
        if not future.cancelled() and future.exception() is not None:
            self._failed.append(future)
            for other in list(self._futures):
                other.cancel()

    def results(self) -> list[Any]:
        if self._failed:
            self._failed[0].result()
        return [future.result() for future in self._futures]
