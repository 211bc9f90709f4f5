"""``parallel``: results in order, places that are kept, one error for all."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.attempts import attempt, created
from support.labels import label
from support.no_threads import no_threads
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync import ExecutionFailed, NoActiveExecution, ToolError
from rebuno_sync.kernel import Kernel


@rebuno.tool
def add(a: int, b: int = 0) -> int:
    return a + b


def own_threads() -> list[threading.Thread]:
    return [it for it in threading.enumerate() if it.name == "rebuno-parallel"]


def test_results_come_in_the_order_of_the_calls(kernel: Kernel) -> None:
    """Whatever form a call has, and whichever ends first."""
    second_ended = threading.Event()

    @rebuno.tool
    def late() -> str:
        assert second_ended.wait(20)
        return "late"

    def early() -> str:
        second_ended.set()
        return "early"

    def handler() -> list[Any]:
        calls = [(late,), early, (add, 1), functools.partial(add, 1, b=2), lambda: add(3), late]
        return rebuno.parallel(calls)

    assert rebuno.run(handler, kernel=kernel) == ["late", "early", 1, 3, 3, "late"]


def test_a_generator_of_calls_and_none_at_all_will_do(kernel: Kernel) -> None:
    """Nothing to do gives an empty list."""

    def handler() -> list[Any]:
        return [rebuno.parallel((add, n, n) for n in range(3)), rebuno.parallel([])]

    assert rebuno.run(handler, kernel=kernel) == [[0, 2, 4], []]


@pytest.mark.parametrize("max_workers", [1, 2, 3])
def test_no_more_calls_run_at_once_than_are_allowed(kernel: Kernel, max_workers: int) -> None:
    """And as many do."""
    guard, running, most = threading.Lock(), [0], [0]
    full = threading.Barrier(max_workers)

    def body() -> None:
        with guard:
            running[0] += 1
            most[0] = max(most[0], running[0])
        full.wait(20)
        with guard:
            running[0] -= 1

    def handler() -> None:
        rebuno.parallel([body] * (3 * max_workers), max_workers=max_workers)

    rebuno.run(handler, kernel=kernel)
    assert most == [max_workers]


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ([(add, 1), "cats"], r"calls\[1\] is 'cats', which is no call"),
        ([()], r"calls\[0\] is \(\), which is no call"),
        ([(add, 1), (1, 2)], r"calls\[1\]"),
        ([(add,)], r"calls\[0\].*missing a required argument: 'a'"),
        ([(add, 1, 2, 3)], r"calls\[0\]"),
        ([functools.partial(add, c=1)], r"calls\[0\]"),
        ([lambda x: x], r"calls\[0\]"),
        ([(add, threading.Lock())], r"args\.a"),
        ("cats", "must be a list of calls"),
        ({"a": add}, "must be a list of calls"),
        (add, "must be a list of calls"),
    ],
    ids=label,
)
def test_what_is_no_call_is_refused_before_anything_begins(
    kernel: Kernel, calls: Any, said: str
) -> None:
    """The message names it by its index."""
    begun: list[int] = []

    def handler() -> None:
        given = [*calls, lambda: begun.append(1)] if isinstance(calls, list) else calls
        with pytest.raises(TypeError, match=said):
            rebuno.parallel(given)

    rebuno.run(handler, kernel=kernel)
    assert begun == []
    assert kernel.list_steps(kernel.list().executions[0].id) == []


def test_an_async_function_is_refused(kernel: Kernel) -> None:
    """Its call would return at once and do nothing."""

    async def body() -> None: ...

    def handler() -> None:
        with pytest.raises(TypeError, match="async"):
            rebuno.parallel([body])

    rebuno.run(handler, kernel=kernel)


@pytest.mark.parametrize(
    ("max_workers", "error"),
    [(0, ValueError), (-1, ValueError), (1.5, TypeError), ("4", TypeError)],
)
def test_a_number_of_threads_that_is_none_is_refused(
    kernel: Kernel, max_workers: Any, error: type[Exception]
) -> None:
    """Before anything begins."""

    def handler() -> None:
        with pytest.raises(error, match="max_workers"):
            rebuno.parallel([(add, 1)], max_workers=max_workers)

    rebuno.run(handler, kernel=kernel)


def test_outside_an_execution_it_says_so() -> None:
    """As any effect does."""
    with pytest.raises(NoActiveExecution, match=r"parallel\(\)"):
        rebuno.parallel([(add, 1)])


def test_the_first_error_is_raised_when_the_others_have_ended(kernel: Kernel) -> None:
    """What had begun is recorded, what had not never begins, and no thread is left."""
    fail_now, failed = threading.Event(), threading.Event()
    begun: list[str] = []

    @rebuno.tool
    def long() -> str:
        begun.append("long")
        fail_now.set()
        assert failed.wait(20)
        return "done all the same"

    @rebuno.tool
    def failing() -> None:
        begun.append("failing")
        assert fail_now.wait(20)
        raise ValueError("the first")

    @rebuno.tool
    def never(n: int) -> None:
        begun.append("never")

    def watch() -> None:
        wait_until(lambda: "failed" in statuses(kernel).values(), "the failure")
        failed.set()

    def handler() -> None:
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            rebuno.parallel([(long,), (failing,), *((never, n) for n in range(20))], max_workers=2)
        finally:
            watcher.join(20)

    with pytest.raises(ExecutionFailed) as caught:
        rebuno.run(handler, kernel=kernel)
    assert isinstance(caught.value.__cause__, ToolError)
    assert "the first" in str(caught.value)
    assert sorted(begun) == ["failing", "long"]
    assert statuses(kernel) == {"long": "succeeded", "failing": "failed"}
    wait_until(lambda: not own_threads(), "the end of the threads")


def statuses(kernel: Kernel) -> dict[str, str]:
    steps = kernel.list_steps(kernel.list(limit=1).executions[0].id)
    return {step.target: str(step.status) for step in steps}


def test_of_two_errors_the_first_in_time_is_raised(kernel: Kernel) -> None:
    """Not the first in the list."""
    second_failed = threading.Event()

    def first() -> None:
        assert second_failed.wait(20)
        raise ValueError("late")

    def second() -> None:
        try:
            raise KeyError("early")
        finally:
            threading.Timer(0.05, second_failed.set).start()

    def handler() -> None:
        rebuno.parallel([first, second])

    with pytest.raises(ExecutionFailed, match="early"):
        rebuno.run(handler, kernel=kernel)


def test_a_signal_in_one_call_ends_all(kernel: Kernel) -> None:
    """A cancel: no further call begins an effect, and the attempt ends as terminated."""
    execution_id = created(kernel)
    begun: list[int] = []

    @rebuno.tool
    def effect(n: int) -> None:
        begun.append(n)
        if n == 1:
            kernel.cancel(execution_id)

    def handler() -> None:
        rebuno.parallel([(effect, n) for n in range(10)], max_workers=1)

    outcome = attempt(kernel, execution_id, handler)
    assert outcome.status in ("terminated", "lease_superseded")
    assert begun == [0, 1]
    wait_until(lambda: not own_threads(), "the end of the threads")


def test_an_error_beside_a_signal_does_not_hide_it(kernel: Kernel) -> None:
    """Code that handles the error must not go on as if the execution were alive."""
    execution_id = created(kernel)
    both_begun = threading.Barrier(2)
    failed = threading.Event()
    after: list[int] = []

    def failing() -> None:
        both_begun.wait(20)
        failed.set()
        raise ValueError("first")

    @rebuno.tool
    def cancelled() -> None:
        both_begun.wait(20)
        assert failed.wait(20)
        kernel.cancel(execution_id)

    def handler() -> None:
        try:
            rebuno.parallel([failing, cancelled])
        except ValueError:
            after.append(1)

    assert attempt(kernel, execution_id, handler).status == "terminated"
    assert after == []


@pytest.mark.parametrize("nested", ["in a call", "in a body"])
def test_it_may_be_nested(kernel: Kernel, nested: str) -> None:
    """With one thread each, nothing waits for itself."""

    def inner() -> int:
        return sum(rebuno.parallel([(add, 1), (add, 1), (add, 2)], max_workers=1))

    body = rebuno.tool("body")(inner) if nested == "in a body" else inner

    def handler() -> list[int]:
        return rebuno.parallel([body, body], max_workers=1)

    assert rebuno.run(handler, kernel=kernel) == [4, 4]


# -- places


SPREAD: dict[str, Callable[[Callable[..., Any], list[int]], list[Any]]] = {
    "parallel": lambda tool, given: rebuno.parallel([(tool, n) for n in given]),
    "partials": lambda tool, given: rebuno.parallel([functools.partial(tool, n) for n in given]),
    "map": lambda tool, given: mapped(tool, given),
    "submit": lambda tool, given: submitted(tool, given),
}


def mapped(tool: Callable[..., Any], given: list[int]) -> list[Any]:
    with rebuno.ThreadPoolExecutor(len(given)) as pool:
        return list(pool.map(tool, given))


def submitted(tool: Callable[..., Any], given: list[int]) -> list[Any]:
    with rebuno.ThreadPoolExecutor(len(given)) as pool:
        futures = [pool.submit(tool, n=n) for n in given]
    return [future.result() for future in futures]


@pytest.mark.parametrize("spread", SPREAD.values(), ids=SPREAD)
def test_identical_calls_have_their_places_in_the_order_of_submission(
    kernel: Kernel, spread: Callable[..., list[Any]]
) -> None:
    """Occurrence n is the n-th of them, though all bodies overlap and end in another order."""
    together = threading.Barrier(24)

    @rebuno.tool
    def place(n: int) -> str:
        together.wait(20)
        return rebuno.execution().around[0]

    def handler() -> list[str]:
        return spread(place, [1, 2, 1, 1] * 6)

    got = rebuno.run(handler, kernel=kernel)
    steps = {it.step_id: it for it in kernel.list_steps(kernel.list().executions[0].id)}
    found = [(steps[step_id].args["n"], steps[step_id].occurrence) for step_id in got]
    ones, twos = iter(range(18)), iter(range(6))
    assert found == [(n, next(ones if n == 1 else twos)) for n in [1, 2, 1, 1] * 6]


class Counter:
    """A class whose method is a tool, called on two receivers."""

    @rebuno.tool
    def count(self, n: int) -> str:
        return rebuno.execution().around[0]


def test_methods_and_wrapped_tools_keep_their_places_too(kernel: Kernel) -> None:
    """The receiver is no part of a call; a wrapper of a tool is another callable."""
    counters = [Counter(), Counter()]
    other = rebuno.wrap_tool("other", lambda args: rebuno.execution().around[0])

    @functools.wraps(Counter.count)
    def wrapper(*args: Any) -> str:
        return "wrapper"

    def handler() -> list[str]:
        calls: list[Any] = [(counters[n % 2].count, 5) for n in range(10)]
        calls += [functools.partial(other, a=1)] * 10
        return rebuno.parallel([*calls, (wrapper, counters[0], 5)])

    *got, last = rebuno.run(handler, kernel=kernel)
    assert last == "wrapper"
    steps = {it.step_id: it for it in kernel.list_steps(kernel.list().executions[0].id)}
    assert [steps[step_id].occurrence for step_id in got] == [*range(10), *range(10)]


def test_a_cancelled_future_gives_its_place_up(kernel: Kernel) -> None:
    """Those behind it do not wait for ever."""
    begun, go = threading.Event(), threading.Event()

    @rebuno.tool
    def hold() -> None:
        begun.set()
        assert go.wait(20)

    def handler() -> list[int]:
        with rebuno.ThreadPoolExecutor(1) as pool:
            pool.submit(hold)
            assert begun.wait(20)
            futures = [pool.submit(add, 1) for _ in range(3)]
            assert futures[0].cancel()
            go.set()
            return [future.result(20) for future in futures[1:]]

    assert rebuno.run(handler, kernel=kernel) == [1, 1]


def test_a_signal_wakes_the_calls_that_sleep(kernel: Kernel) -> None:
    """A lost answer that one call meets does not wait for another's hour."""
    execution_id = created(kernel)

    def interrupted() -> None:
        wait_until(lambda: "sleep" in statuses(kernel), "the sleep")
        rebuno.execution().interrupt("as a test says")
        add(1)

    def handler() -> None:
        rebuno.parallel([(rebuno.sleep, 3600), interrupted])

    assert attempt(kernel, execution_id, handler).status == "interrupted"


def test_tools_with_bounds_keep_their_places(kernel: Kernel) -> None:
    """A time-out runs the body in a thread of its own; the submit is the caller's."""

    @rebuno.tool(timeout=20.0, retries=2)
    def place(n: int) -> str:
        return rebuno.execution().around[0]

    def handler() -> list[str]:
        return rebuno.parallel([(place, 1)] * 12)

    got = rebuno.run(handler, kernel=kernel)
    steps = {it.step_id: it for it in kernel.list_steps(kernel.list().executions[0].id)}
    assert [steps[step_id].occurrence for step_id in got] == list(range(12))


def test_a_call_that_no_thread_could_be_had_for_does_not_hold_up_the_next(kernel: Kernel) -> None:
    """Submitting it raises; an identical call later does not wait for its place."""

    def handler() -> int:
        with rebuno.ThreadPoolExecutor(1) as pool:
            with no_threads(), pytest.raises(RuntimeError, match="thread"):
                pool.submit(add, 1)
            return pool.submit(add, 1).result(20)

    assert rebuno.run(handler, kernel=kernel) == 1


def test_an_exit_in_a_call_is_that_effects_failure(kernel: Kernel) -> None:
    """In a thread of its own it ends nothing."""

    @rebuno.tool
    def leave() -> None:
        raise SystemExit(4)

    def handler() -> str:
        with pytest.raises(ToolError) as raised:
            rebuno.parallel([leave, (add, 1)])
        return raised.value.error_type

    assert rebuno.run(handler, kernel=kernel) == "builtins.SystemExit"
