"""A process that can have no thread, as at the limit that a container sets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["no_threads"]

_LARGER_THAN_ANY_MEMORY = 2**47


@contextmanager
def no_threads() -> Iterator[None]:
    """Whoever starts a thread meanwhile gets ``RuntimeError: can't start new thread``."""
    before = threading.stack_size(_LARGER_THAN_ANY_MEMORY)
    try:
        yield
    finally:
        threading.stack_size(before)
