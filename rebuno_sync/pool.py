"""Taking the execution into other threads."""

from __future__ import annotations

import concurrent.futures
import contextvars
import functools
import logging
import os
import threading
from collections.abc import Callable, Hashable
from concurrent.futures.thread import BrokenThreadPool
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet

from .carrying import in_copies
from .context import ExecutionContext, here
from .turns import Turn, Turns, identity_of
from .workers import Workers

__all__ = ["ThreadPoolExecutor", "carry"]

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger(__name__)

_MOST_QUEUED = 1 << 30


def carry(fn: Callable[P, R]) -> Callable[P, R]:
    """A callable that runs ``fn`` in the caller's execution, whatever thread calls it.

    The whole context of the thread that calls ``carry`` comes along (tenant variables, tracing
    spans); each call gets a copy of its own, so calls may overlap. Outside an execution it carries
    just that.
    """
    context = _present()
    if context is None:
        return in_copies(fn)
    in_copy = in_copies(_carried(context, fn))

    @functools.wraps(fn)
    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        context.past.move(1)
        try:
            return in_copy(*args, **kwargs)
        finally:
            context.past.move(-1)

    return carried


class ThreadPoolExecutor(concurrent.futures.ThreadPoolExecutor):
    """``concurrent.futures.ThreadPoolExecutor`` whose threads are in the execution that submits.

    Identical calls of a tool get their places in the order in which they are submitted, so that a
    replay gives each call its own result. The threads are daemons, and the interpreter does not
    wait for them at its exit: leave the ``with`` block, or call ``shutdown``, for what must end.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        thread_name_prefix: str = "",
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
    ) -> None:
        # The base class starts its threads in ``submit``, which is replaced: none of them exist.
        super().__init__(max_workers, thread_name_prefix, initializer, initargs)
        self._name = thread_name_prefix or "rebuno-pool"
        self._begin_thread = None if initializer is None else (initializer, initargs)
        self._open = True
        self._is_broken = False
        self._begin()
        _pools.add(self)

    def _begin(self) -> None:
        """Begin with no thread and nothing queued: also in a forked child, which has neither."""
        self._threads_of_ours: Workers[_Work] = Workers(
            self._name,
            lambda work, _: self._run(work),
            size=self._max_workers,
            longest_queue=_MOST_QUEUED,
        )
        self._thread = threading.local()
        self._turns = Turns()
        self._queueing = threading.Lock()

    def submit(
        self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> concurrent.futures.Future[R]:
        """As in the base class, with the submitting thread's context carried along."""
        context = _present()
        identity = None if context is None else _identity(context, fn, args, kwargs)
        call = contextvars.copy_context().run
        run = fn if context is None else _carried(context, fn)
        future: concurrent.futures.Future[R] = _Future()
        with self._queueing:
            self._refuse_if_over()
            turn = self._turns.turn(identity)
            work = _Work(future, functools.partial(call, run, *args, **kwargs), turn)
            if context is not None:
                context.past.move(1)
                future.add_done_callback(lambda _: context.past.move(-1))
            try:
                self._threads_of_ours.offer(work)
            except BaseException:  # No thread can be had: the next identical call is not to wait.
                turn.pass_on()
                future.cancel()
                raise
        return future

    def _refuse_if_over(self) -> None:
        if self._is_broken:
            raise BrokenThreadPool("the initializer of a thread failed; the pool is not usable")
        if not self._open:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def _run(self, work: _Work) -> None:
        if not self._thread_is_begun():
            self._break(work)
            return
        if not work.future.set_running_or_notify_cancel():
            work.turn.pass_on()
            return
        try:
            with work.turn.kept():
                result = work.call()
        except BaseException as error:
            work.future.set_exception(error)
        else:
            work.future.set_result(result)

    def _thread_is_begun(self) -> bool:
        if self._is_broken:
            return False
        if self._begin_thread is not None and not hasattr(self._thread, "begun"):
            initializer, arguments = self._begin_thread
            try:
                initializer(*arguments)
            except BaseException:
                _log.critical("the initializer of a thread failed", exc_info=True)
                return False
        self._thread.begun = True
        return True

    def _break(self, work: _Work) -> None:
        """A thread could not be begun: nothing that waits will run."""
        with self._queueing:
            self._is_broken = True
        for one in (work, *self._threads_of_ours.close()):
            one.turn.pass_on()
            if one.future.set_running_or_notify_cancel():
                one.future.set_exception(BrokenThreadPool("the initializer of a thread failed"))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As in the base class; without ``wait`` what was submitted still runs."""
        with self._queueing:
            self._open = False
        if cancel_futures:
            for work in self._threads_of_ours.close():
                work.turn.pass_on()
                work.future.cancel()
                work.future.set_running_or_notify_cancel()
        if wait:
            self._threads_of_ours.join()
            self._threads_of_ours.close()


def _present() -> ExecutionContext | None:
    found = here()
    return None if found is None else found[0]


def _carried(context: ExecutionContext, fn: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(fn)
    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        with context.carried():
            return fn(*args, **kwargs)

    return carried


def _identity(
    context: ExecutionContext,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Hashable | None:
    """What a turn is kept for: a call of a tool in one attempt."""
    try:
        call = identity_of(fn, args, kwargs)
    except Exception:  # The call itself raises it again, into its future.
        return None
    if call is None:
        return None
    return context.id, context.dispatch_id, context.dispatch_attempt, call


class _Future(concurrent.futures.Future[R]):
    """One whose waiting threads are known to do nothing meanwhile."""

    def result(self, timeout: float | None = None) -> R:
        context = None if self.done() else _present()
        if context is None:
            return super().result(timeout)
        context.past.move(-1)
        try:
            return super().result(timeout)
        finally:
            context.past.move(1)


class _Work:
    """A submitted call."""

    def __init__(
        self, future: concurrent.futures.Future[Any], call: Callable[[], Any], turn: Turn
    ) -> None:
        self.future = future
        self.call = call
        self.turn = turn


_pools: WeakSet[ThreadPoolExecutor] = WeakSet()


def _forget_inherited() -> None:
    for pool in list(_pools):
        pool._begin()


os.register_at_fork(after_in_child=_forget_inherited)
