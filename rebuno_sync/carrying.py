"""Taking the context of one thread into another: tenant variables, tracing spans, the execution."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["in_copies"]

P = ParamSpec("P")
R = TypeVar("R")


def in_copies(fn: Callable[P, R]) -> Callable[P, R]:
    """A callable that runs ``fn`` in the calling thread's context of now, each call in a copy of
    its own, so that calls may overlap."""
    taken = contextvars.copy_context()

    @functools.wraps(fn)
    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        return taken.copy().run(fn, *args, **kwargs)

    return carried
