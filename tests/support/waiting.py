"""Waiting for something outside this process, with a limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["wait_until"]

T = TypeVar("T")

_PAUSE_SECONDS = 0.002


def wait_until(condition: Callable[[], T], what: str, seconds: float = 20.0) -> T:
    """The first true answer of ``condition``, which is asked again and again.

    ``what`` completes the sentence "... did not happen" of the ``AssertionError`` that is raised
    after ``seconds``.
    """
    limit = time.monotonic() + seconds
    pause = threading.Event()
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= limit:
            raise AssertionError(f"{what} did not happen within {seconds} s")
        pause.wait(_PAUSE_SECONDS)
