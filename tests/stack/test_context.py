"""``execution()``: what a handler can learn of the attempt that runs it, and its seams."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from support.attempts import attempt, background, created
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync import ToolError, errors
from rebuno_sync.kernel import Kernel


def test_the_context_knows_its_execution_and_its_attempt(kernel: Kernel) -> None:
    """Ids, input and status are there; the attempt's number rises."""
    seen: list[dict[str, Any]] = []

    def handler(n: int) -> None:
        context = rebuno.execution()
        names = ("id", "agent_id", "input", "status", "dispatch_id", "dispatch_attempt")
        seen.append({name: getattr(context, name) for name in names})
        if len(seen) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rebuno.run(handler, {"n": 3}, key="k", agent="an-agent", kernel=kernel)
    rebuno.run(handler, {"n": 3}, key="k", agent="an-agent", kernel=kernel)
    [execution] = kernel.list().executions
    first, second = seen
    assert first["id"] == second["id"] == execution.id
    assert first["agent_id"] == "an-agent"
    assert first["input"] == {"n": 3}
    assert first["status"] == "running"
    assert first["dispatch_id"] == second["dispatch_id"] != ""
    assert (first["dispatch_attempt"], second["dispatch_attempt"]) == (1, 2)


def test_the_context_is_the_innermost_ones(kernel: Kernel) -> None:
    """A nested ``run`` has an execution of its own, and gives the outer one back."""
    ids: list[str] = []

    def inner() -> None:
        ids.append(rebuno.execution().id)

    def outer() -> None:
        ids.append(rebuno.execution().id)
        rebuno.run(inner, kernel=kernel)
        ids.append(rebuno.execution().id)

    rebuno.run(outer, kernel=kernel)
    assert ids[0] == ids[2] != ids[1]


# -- replaying


def test_replaying_is_true_until_the_recorded_steps_are_met(kernel: Kernel) -> None:
    """False on a first attempt; on a later one true up to the last recorded step."""
    seen: list[bool] = []

    def handler() -> None:
        context = rebuno.execution()
        for name in ("a", "b", "c"):
            seen.append(context.replaying)
            rebuno.step(name, lambda: 1)
            if name == "b" and context.dispatch_attempt == 1:
                raise KeyboardInterrupt
        seen.append(context.replaying)

    with pytest.raises(KeyboardInterrupt):
        rebuno.run(handler, key="k", kernel=kernel)
    assert seen == [False, False]
    seen.clear()
    rebuno.run(handler, key="k", kernel=kernel)
    assert seen == [True, True, False, False]


def test_a_step_that_was_cut_down_and_begins_again_is_nothing_new(kernel: Kernel) -> None:
    """Recorded steps that come after it are still to be met."""
    seen: list[bool] = []

    def handler() -> None:
        context = rebuno.execution()
        first = context.dispatch_attempt == 1
        seen.append(context.replaying)
        with rebuno.ThreadPoolExecutor(1) as pool:
            if first:
                pool.submit(rebuno.step, "b", lambda: 1).result()
            rebuno.step("a", cut_down if first else lambda: 1)
            seen.append(context.replaying)
            pool.submit(rebuno.step, "b", lambda: 1).result()
        seen.append(context.replaying)

    with pytest.raises(KeyboardInterrupt):
        rebuno.run(handler, key="k", kernel=kernel)
    rebuno.run(handler, key="k", kernel=kernel)
    assert seen == [False, True, True, False]


def cut_down() -> int:
    raise KeyboardInterrupt


# -- waiting and being cancelled


def test_wait_sleeps_and_is_woken_when_the_lease_ends(kernel: Kernel) -> None:
    """A cancelled attempt does not sleep on: the flag wakes it."""
    took: list[float] = []

    def handler() -> None:
        context = rebuno.execution()
        started = time.monotonic()
        context.wait(0.05)
        took.append(time.monotonic() - started)
        threading.Thread(target=context._lease.end).start()
        with pytest.raises(errors.LeaseSuperseded):
            context.wait(60)
        took.append(time.monotonic() - started)

    outcome = attempt(kernel, created(kernel), handler)
    assert outcome.status == "lease_superseded"
    assert 0.05 <= took[0] <= took[1] < 20


def test_a_cancel_reaches_a_waiting_handler_with_a_heartbeat(tmp_path: Any) -> None:
    """``cancelled`` turns true and ``wait`` raises, by the next beat at the latest."""
    with Kernel(tmp_path / "short.db", lease_timeout=0.6) as kernel:
        waiting = threading.Event()
        execution_id = created(kernel)

        def handler() -> None:
            context = rebuno.execution()
            waiting.set()
            wait_until(lambda: context.cancelled, "the cancel")
            context.wait(60)

        with background(lambda: attempt(kernel, execution_id, handler)) as thread:
            waiting.wait(20)
            kernel.cancel(execution_id)
            assert thread.result().status == "terminated"


# -- the seam for one's own primitives


def test_invoke_tool_is_an_effect_of_ones_own_making(kernel: Kernel) -> None:
    """Target, kind, arguments and idempotency are the caller's; it is recorded and replays."""
    bodies: list[int] = []
    got: list[object] = []

    def handler() -> None:
        context = rebuno.execution()
        got.append(
            context.invoke_tool(
                "mine",
                {"b": 1, "a": [True]},
                lambda: bodies.append(1) or {"n": (1, 2)},  # type: ignore[func-returns-value]
                idempotency="at_most_once",
                kind="local",
            )
        )
        got.append(context.invoke_tool("marker", {}, None))
        if len(got) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rebuno.run(handler, key="k", kernel=kernel)
    rebuno.run(handler, key="k", kernel=kernel)
    assert got == [{"n": [1, 2]}, None] * 2
    assert bodies == [1]
    [execution] = kernel.list().executions
    mine, marker = sorted(kernel.list_steps(execution.id), key=lambda step: step.target != "mine")
    assert (mine.kind, mine.args, mine.idempotency) == (
        *("local", {"a": [True], "b": 1}, "at_most_once"),
    )
    assert (marker.kind, marker.status, marker.result) == ("tool_call", "succeeded", None)


def test_invoke_tool_raises_what_a_denied_or_failed_effect_raises(kernel: Kernel) -> None:
    """No text for a model: that is ``tool``'s."""
    got: list[object] = []

    def handler() -> None:
        context = rebuno.execution()
        for _ in range(2):
            try:
                context.invoke_tool("mine", {}, cut_down, idempotency="at_most_once")
            except Exception as error:
                got.append(error)

    with pytest.raises(KeyboardInterrupt):
        rebuno.run(handler, key="k", kernel=kernel)
    rebuno.run(handler, key="k", kernel=kernel)
    unknown, denied = got
    assert isinstance(unknown, ToolError)
    assert isinstance(denied, rebuno.PolicyError)


def test_a_context_may_be_used_from_a_thread_that_was_not_carried(kernel: Kernel) -> None:
    """Who holds the context object performs effects with it directly."""

    def handler() -> object:
        context = rebuno.execution()
        with background(lambda: context.invoke_tool("mine", {}, lambda: 5)) as thread:
            pass
        return thread.result()

    assert rebuno.run(handler, kernel=kernel) == 5


def test_a_context_whose_attempt_has_ended_performs_nothing(kernel: Kernel) -> None:
    """The kernel says that the execution has ended."""
    contexts = []

    def handler() -> None:
        contexts.append(rebuno.execution())

    rebuno.run(handler, kernel=kernel)
    bodies: list[int] = []
    with pytest.raises(errors.Terminated):
        contexts[0].invoke_tool("mine", {}, lambda: bodies.append(1))
    assert bodies == []
