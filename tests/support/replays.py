"""What an effect gives on the attempt that runs it and on one that replays it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import Step

__all__ = ["and_a_step", "live_and_replayed", "model_calls", "only_step"]

_ORDER = itertools.count(1)


def live_and_replayed(kernel: Kernel, effect: Callable[[], Any]) -> tuple[Any, Any]:
    """What ``effect`` returns to a handler, or raises, in each of the two.

    The first attempt is interrupted after the effect, as by Ctrl-C; the second has the same key.
    """
    got: list[Any] = []

    def handler() -> None:
        try:
            got.append(effect())
        except Exception as error:
            got.append(error)
        if len(got) == 1:
            raise KeyboardInterrupt

    key = f"live-and-replayed-{next(_ORDER)}"
    with pytest.raises(KeyboardInterrupt):
        rebuno.run(handler, key=key, kernel=kernel)
    rebuno.run(handler, key=key, kernel=kernel)
    live, replayed = got
    return live, replayed


def only_step(kernel: Kernel) -> Step:
    """The one step that the file's newest execution has."""
    [step] = kernel.list_steps(kernel.list(limit=1).executions[0].id)
    return step


def and_a_step(effect: Callable[[], Any]) -> Callable[[], Any]:
    """``effect``, with a step after it: a model call that failed is settled by what comes next."""

    def followed() -> Any:
        try:
            return effect()
        finally:
            rebuno.step("next", lambda: None)

    return followed


def model_calls(kernel: Kernel) -> list[Step]:
    """Those of the newest execution, in the order in which they began."""
    steps = kernel.list_steps(kernel.list(limit=1).executions[0].id)
    found = [step for step in steps if step.kind == "llm_call"]
    return sorted(found, key=lambda step: step.occurrence)
