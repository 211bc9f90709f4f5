"""Taking the execution into other threads."""

from __future__ import annotations

import concurrent.futures
import contextvars
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["ThreadPoolExecutor", "carry"]

P = ParamSpec("P")
R = TypeVar("R")


def carry(fn: Callable[P, R]) -> Callable[P, R]:
    """A callable that runs ``fn`` in the caller's execution, whatever thread calls it.

    The whole context of the thread that calls ``carry`` comes along (tenant variables, tracing
    spans); each call gets a copy of its own, so calls may overlap. Outside an execution it carries
    just that.
    """
    taken = contextvars.copy_context()

    @functools.wraps(fn)
    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        return taken.copy().run(fn, *args, **kwargs)

    return carried


class ThreadPoolExecutor(concurrent.futures.ThreadPoolExecutor):
    """``concurrent.futures.ThreadPoolExecutor`` whose threads are in the execution that submits."""

    def submit(
        self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> concurrent.futures.Future[R]:
        """As in the base class, with the submitting thread's context carried along."""
        return super().submit(carry(fn), *args, **kwargs)
