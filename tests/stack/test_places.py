"""Equal calls keep apart: those in another effect's body, and those that a body interferes with."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import rebuno_sync as rebuno
from rebuno_sync import PolicyError, RateLimited, ToolError
from rebuno_sync.kernel import Kernel


def interrupted_after(kernel: Kernel, handler: Any, key: str = "k") -> None:
    """Run an attempt that is ended by Ctrl-C."""
    with pytest.raises(KeyboardInterrupt):
        rebuno.run(handler, key=key, kernel=kernel)


@pytest.mark.parametrize("calls_before_the_end", [0, 1])
@pytest.mark.parametrize("levels", [1, 2])
def test_an_equal_call_after_an_effect_that_made_one_is_another_call(
    kernel: Kernel, calls_before_the_end: int, levels: int
) -> None:
    """The outer effect replays without its body; the call recorded in that is behind us too."""
    charges: list[int] = []
    ends = [True]

    @rebuno.tool(idempotency="at_most_once")
    def charge(cents: int) -> str:
        charges.append(cents)
        return f"receipt-{len(charges)}"

    @rebuno.tool
    def ship(level: int) -> str:
        return charge(5) if level == 1 else ship(level - 1)

    def handler() -> list[str]:
        receipts = [ship(levels)]
        if calls_before_the_end == 0 and ends:
            ends.pop()
            raise KeyboardInterrupt
        receipts.append(charge(5))
        if ends:
            ends.pop()
            raise KeyboardInterrupt
        return receipts

    interrupted_after(kernel, handler)
    assert rebuno.run(handler, key="k", kernel=kernel) == ["receipt-1", "receipt-2"]
    assert charges == [5, 5]


def test_what_a_body_does_to_its_arguments_changes_no_later_call(kernel: Kernel) -> None:
    """A loop that hands its history to tools resumes where it was."""
    asked: list[int] = []

    @rebuno.tool(idempotency="at_most_once")
    def ask(messages: list[str]) -> str:
        asked.append(len(messages))
        messages.append("scribbled by the body")
        return f"answer {len(asked)}"

    def handler() -> list[str]:
        messages = ["question"]
        messages.append(ask(messages))
        messages.append(ask(messages))
        if len(asked) == 2 and not ended:
            ended.append(True)
            raise KeyboardInterrupt
        return messages

    ended: list[bool] = []
    interrupted_after(kernel, handler)
    assert rebuno.run(handler, key="k", kernel=kernel) == ["question", "answer 1", "answer 2"]
    assert asked == [1, 2]


def test_a_changeable_default_value_is_fresh_for_each_call(kernel: Kernel) -> None:
    """A default that a body appends to would be another argument of the next call."""

    @rebuno.tool
    def remember(value: int, seen: list[int] = []) -> list[int]:  # noqa: B006 - the point of it
        seen.append(value)
        return seen

    def handler() -> list[list[int]]:
        got = [remember(1), remember(2)]
        if not ended:
            ended.append(True)
            raise KeyboardInterrupt
        return got

    ended: list[bool] = []
    interrupted_after(kernel, handler)
    assert rebuno.run(handler, key="k", kernel=kernel) == [[1], [2]]
    [execution] = kernel.list().executions
    assert len(kernel.list_steps(execution.id)) == 2


@pytest.mark.parametrize("refusal", [PolicyError("not_today"), RateLimited("slow down")])
def test_a_refusal_that_a_body_raises_itself_is_its_failure(
    kernel: Kernel, refusal: Exception
) -> None:
    """Only an effect that a kernel refused leaves the step around it open."""
    bodies: list[int] = []
    got: list[str] = []

    @rebuno.tool
    def pay() -> None:
        bodies.append(1)
        raise refusal

    def handler() -> None:
        with pytest.raises(ToolError) as caught:
            pay()
        got.append(str(caught.value))
        if len(got) == 1:
            raise KeyboardInterrupt

    interrupted_after(kernel, handler)
    rebuno.run(handler, key="k", kernel=kernel)
    assert len(bodies) == 1
    assert got[0] == got[1]


def test_a_run_within_an_execution_that_is_over_starts_nothing(kernel: Kernel) -> None:
    """A swallowed signal must not be got round by an execution inside."""
    inner: list[int] = []

    @rebuno.tool
    def effect() -> None: ...

    def handler() -> None:
        kernel.cancel(rebuno.execution().id)
        try:
            effect()
        except BaseException:  # as code that must not, does
            rebuno.run(lambda: inner.append(1), agent="inner", kernel=kernel)

    with pytest.raises(rebuno.ExecutionCancelled):
        rebuno.run(handler, kernel=kernel)
    assert not inner


def test_an_equal_call_beside_an_effect_that_makes_one_is_not_made_again(kernel: Kernel) -> None:
    """The effect replays without its body, but what was called before that is still to be met."""
    charges: list[int] = []

    @rebuno.tool(idempotency="at_most_once")
    def charge(cents: int) -> int:
        charges.append(cents)
        return len(charges)

    charged, shipped = threading.Event(), threading.Event()

    @rebuno.tool
    def ship() -> int:
        assert charged.wait(20)
        return charge(5)

    def first() -> list[int]:
        def charge_first() -> int:
            receipt = charge(5)
            charged.set()
            return receipt

        receipts = rebuno.parallel([charge_first, ship])
        raise KeyboardInterrupt(receipts)

    def again() -> list[int]:
        def charge_later() -> int:
            assert shipped.wait(20)
            return charge(5)

        def ship_first() -> int:
            receipt = ship()
            shipped.set()
            return receipt

        return rebuno.parallel([charge_later, ship_first])

    with pytest.raises(KeyboardInterrupt):
        rebuno.run(first, key="k", agent="a", kernel=kernel)
    assert rebuno.run(again, key="k", agent="a", kernel=kernel) == [1, 2]
    assert charges == [5, 5]
