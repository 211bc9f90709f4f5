"""Says the ids of steps whose arguments are sets and floats; the execution's id is given."""

from __future__ import annotations

from support.children import arguments, say

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel


@rebuno.tool
def tag(words: set[str], fixed: frozenset[str], nested: dict[str, set[int]]) -> None:
    pass


@rebuno.tool
def bare(words: set) -> None:  # type: ignore[type-arg]
    pass


def handler() -> None:
    words = {"alpha", "beta", "gamma", "delta", "epsilon"}
    tag(words, frozenset(words), {"numbers": {3, 1, 20}})
    bare(words)
    rebuno.step("count", count, {"words": words})
    for number in (1e-05, 1e16, -0.0, 0.1, 1e22, 5e-324, 123456789.123):
        for effect in (floating, plain, wrapped):
            effect(number=number)


def count(words: set[str]) -> int:
    return len(words)


@rebuno.tool("number")
def floating(number: float) -> None:
    pass


@rebuno.tool("number")
def plain(number):  # type: ignore[no-untyped-def]
    pass


wrapped = rebuno.wrap_tool("number", lambda given: None)


if __name__ == "__main__":
    with Kernel(arguments()["db"]) as kernel:
        rebuno.run(handler, key="once", kernel=kernel)
        [execution] = kernel.list().executions
        steps = kernel.list_steps(execution.id)
        say(sorted([step.target, step.args_hash, step.occurrence] for step in steps))
