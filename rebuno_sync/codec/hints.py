"""The annotations of a callable, resolved as far as they can be."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

__all__ = ["hints_of"]


def hints_of(fn: Callable[..., object]) -> dict[str, Any]:
    """The annotation of each annotated parameter, and of ``"return"``.

    A string annotation that names nothing known stays a string; it does not spoil the others.
    """
    while isinstance(fn, functools.partial):
        fn = fn.func
    target: Any = fn
    if inspect.isclass(fn):
        target = fn.__init__
    elif not inspect.isroutine(fn):
        target = type(fn).__call__
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception:  # a string annotation is any expression, so it raises anything
        known = getattr(inspect.unwrap(target), "__globals__", {})
        annotations = getattr(target, "__annotations__", {})
        return {name: _resolved(hint, known) for name, hint in annotations.items()}


def _resolved(hint: Any, known: dict[str, Any]) -> Any:
    alone = SimpleNamespace(__annotations__={"it": hint})
    try:
        return typing.get_type_hints(alone, globalns=known, include_extras=True)["it"]
    except Exception:
        return hint
