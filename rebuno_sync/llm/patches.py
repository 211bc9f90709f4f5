"""Wrapping the methods through which HTTP libraries send, for as long as somebody wants it."""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

__all__ = ["Interest", "Seam"]

T = TypeVar("T")

Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Makes, of a method, the one that takes its place."""


class Seam:
    """One method of an installed library: ``module``, and ``Class.method`` in it."""

    def __init__(self, module: str, method: str, wrap: Wrapper) -> None:
        self._module = module
        self._class, _, self._name = method.partition(".")
        self._wrap = wrap
        self._original: Any = None
        self._ours: Any = None

    def open(self) -> None:
        """Wrap the method; its library is imported for it if it is installed."""
        if importlib.util.find_spec(self._module.partition(".")[0]) is None:
            return
        owner = getattr(importlib.import_module(self._module), self._class)
        self._original = getattr(owner, self._name)
        self._ours = self._wrap(self._original)
        setattr(owner, self._name, self._ours)

    def close(self) -> None:
        """Put the method back, unless somebody has wrapped ours meanwhile."""
        if self._ours is None:
            return
        owner = getattr(importlib.import_module(self._module), self._class)
        if getattr(owner, self._name) is self._ours:
            setattr(owner, self._name, self._original)
        self._original = self._ours = None


class Interest(Generic[T]):
    """Who wants the seams open, each with what they want of them; the last is asked first."""

    def __init__(self, seams: Iterable[Seam]) -> None:
        self._seams = list(seams)
        self._guard = threading.Lock()
        self.held: tuple[T, ...] = ()

    def add(self, thing: T) -> None:
        with self._guard:
            if not self.held:
                for seam in self._seams:
                    seam.open()
            self.held = (thing, *self.held)

    def remove(self, thing: T) -> None:
        with self._guard:
            if thing not in self.held:
                return
            self.held = tuple(one for one in self.held if one is not thing)
            if not self.held:
                for seam in self._seams:
                    seam.close()
