"""Changed code meets old executions: reports of drift, ``strict``, ``patched``, ``replaying``."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.attempts import AGENT, attempt, claimed, created

import rebuno_sync as rebuno
from rebuno_sync import CodeChanged
from rebuno_sync.agent import dispatch
from rebuno_sync.binding import Binding
from rebuno_sync.kernel import Kernel
from rebuno_sync.logs import ExecutionFilter
from rebuno_sync.turns import Turns, in_turn

paid: list[str] = []


@rebuno.tool
def search(query: str) -> str:
    return f"found {query}"


@rebuno.tool
def search_all(query: str) -> str:
    paid.append(query)
    return f"found all {query}"


@rebuno.tool
def ship(order: str) -> str:
    return f"shipped {order}"


@rebuno.tool(idempotency="at_most_once")
def charge(order: str) -> str:
    paid.append(order)
    return f"charged {order}"


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    paid.clear()


def interrupted(kernel: Kernel, handler: Callable[[], object], key: str = "k") -> None:
    """An attempt of the old code that is ended by Ctrl-C after what it did."""

    def old() -> None:
        handler()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rebuno.run(old, key=key, agent="a", kernel=kernel)


def resumed(kernel: Kernel, handler: Callable[[], Any], key: str = "k", **given: Any) -> Any:
    return rebuno.run(handler, key=key, agent="a", kernel=kernel, **given)


def reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        it.getMessage()
        for it in caplog.records
        if it.levelno >= logging.WARNING and "has not met" in it.getMessage()
    ]


def targets(kernel: Kernel) -> list[str]:
    steps = kernel.list_steps(kernel.list(limit=1).executions[0].id)
    return sorted(step.target for step in steps)


# -- C38


def test_c38_a_renamed_tool_is_reported_at_the_first_new_step(
    kernel: Kernel, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, with target and arguments of what was not met again; the run goes on."""
    interrupted(kernel, lambda: [search("cats"), search("dogs")])
    reported_before: list[int] = []

    def renamed() -> list[str]:
        first = search_all("cats")
        reported_before.append(len(reports(caplog)))
        return [first, search_all("dogs")]

    assert resumed(kernel, renamed) == ["found all cats", "found all dogs"]
    [report] = reports(caplog)
    assert 'tool_call search {"query": "cats"}, tool_call search {"query": "dogs"}' in report
    assert 'first new step, tool_call search_all {"query": "cats"}' in report
    assert reported_before == [1]


def test_c38_a_new_default_of_an_argument_is_reported(
    kernel: Kernel, caplog: pytest.LogCaptureFixture
) -> None:
    """It changes the call's identity; what was met before the change is not named."""
    interrupted(kernel, lambda: [ship("a"), search("cats")])

    @rebuno.tool("search")
    def search_some(query: str, limit: int = 10) -> str:
        return f"{limit} {query}"

    assert resumed(kernel, lambda: [ship("a"), search_some("cats")]) == ["shipped a", "10 cats"]
    [report] = reports(caplog)
    assert "has not met 1 of its recorded steps" in report
    assert 'tool_call search {"query": "cats"}' in report
    assert "ship" not in report


def test_c38_strict_stops_before_the_new_step_is_paid_for(kernel: Kernel) -> None:
    """Nothing is recorded, nothing is lost, and corrected code goes on where it was."""
    interrupted(kernel, lambda: search("cats"))
    before = targets(kernel)
    for _ in range(7):  # More often than silent crashes are allowed.
        with pytest.raises(CodeChanged, match=r'search \{"query": "cats"\}') as caught:
            resumed(kernel, lambda: search_all("cats"), strict=True)
    assert caught.value.execution_id == kernel.list().executions[0].id
    assert paid == []
    assert targets(kernel) == before
    assert resumed(kernel, lambda: [search("cats"), ship("a")], strict=True) == [
        *("found cats", "shipped a"),
    ]


@pytest.mark.parametrize("spread", ["parallel", "map"])
def test_c38_strict_stops_in_threads_too(kernel: Kernel, spread: str) -> None:
    """Every thread is at a new step, so what is missing will not come."""

    def over(tool: Callable[..., Any]) -> list[Any]:
        if spread == "parallel":
            return rebuno.parallel([(tool, "cats"), (tool, "dogs"), (tool, "cats")])
        with rebuno.ThreadPoolExecutor(3) as pool:
            return list(pool.map(tool, ["cats", "dogs", "cats"]))

    interrupted(kernel, lambda: over(search))
    with pytest.raises(CodeChanged, match="3 of its recorded steps"):
        resumed(kernel, lambda: over(search_all), strict=True)
    assert paid == []
    assert len(resumed(kernel, lambda: over(search), strict=True)) == 3


def test_c38_a_strict_stop_cannot_be_swallowed(kernel: Kernel) -> None:
    """It is a signal in the handler: no later effect begins."""
    interrupted(kernel, lambda: search("cats"))

    def handler() -> None:
        with contextlib.suppress(BaseException):  # As a framework does that catches everything.
            search_all("cats")
        search_all("dogs")

    with pytest.raises(CodeChanged):
        resumed(kernel, handler, strict=True)
    assert paid == []


def test_c38_a_strict_attempt_ends_as_interrupted(kernel: Kernel) -> None:
    """With its strike, and due after the back-off, for a process that has other code."""
    execution_id = created(kernel)
    with pytest.raises(KeyboardInterrupt):
        attempt(kernel, execution_id, lambda: cut_after(search))
    lease = claimed(kernel, execution_id)
    outcome = dispatch(Binding(lambda: search_all("cats")), kernel.agent, lease, strict=True)
    assert outcome.status == "interrupted"
    assert isinstance(outcome.error, CodeChanged)
    assert kernel.get(execution_id).status == "running"
    assert kernel.claim(execution_id) is None
    assert paid == []


def cut_after(tool: Callable[..., Any]) -> None:
    tool("cats")
    raise KeyboardInterrupt


def test_c38_an_agent_may_be_strict(kernel: Kernel) -> None:
    """Every attempt that it takes stops so."""
    asked = threading.Event()
    execution_id = created(kernel)
    with pytest.raises(KeyboardInterrupt):
        attempt(kernel, execution_id, lambda: cut_after(search))

    def handler() -> str:
        asked.set()
        return search_all("cats")

    agent = rebuno.Agent(AGENT, kernel=kernel, strict=True)
    agent.bind(handler)
    assert asked.wait(20)
    agent.close()
    assert paid == []
    assert kernel.get(execution_id).status == "running"


# -- what is no drift


def no_drift(
    kernel: Kernel,
    caplog: pytest.LogCaptureFixture,
    old: Callable[[], object],
    new: Callable[[], Any],
) -> Any:
    """The result of ``new`` under ``strict``, after an attempt of ``old``: nothing is reported."""
    interrupted(kernel, old)
    result = resumed(kernel, new, strict=True)
    assert reports(caplog) == []
    return result


def test_code_that_only_goes_on_is_no_drift(
    kernel: Kernel, caplog: pytest.LogCaptureFixture
) -> None:
    """All that is recorded was met when the first new step comes."""
    old = [search, ship]
    no_drift(
        *(kernel, caplog),
        lambda: [fn("a") for fn in old],
        lambda: [fn("a") for fn in [*old, search, charge]],
    )


@pytest.mark.parametrize("idempotency", ["safe_to_retry", "at_most_once"])
def test_a_step_that_was_cut_down_counts_only_when_it_may_have_happened(
    kernel: Kernel, caplog: pytest.LogCaptureFixture, idempotency: Any
) -> None:
    """An unsettled step that may be repeated is no drift; one that may not is."""

    @rebuno.tool("cut", idempotency=idempotency)
    def cut() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resumed(kernel, cut)
    if idempotency == "safe_to_retry":
        assert resumed(kernel, lambda: search("a"), strict=True) == "found a"
    else:
        with pytest.raises(CodeChanged, match="cut"):
            resumed(kernel, lambda: search("a"), strict=True)


def test_calls_in_the_body_of_a_replayed_effect_are_no_drift(
    kernel: Kernel, caplog: pytest.LogCaptureFixture
) -> None:
    """They are behind it, at any depth."""

    @rebuno.tool
    def inner() -> str:
        return search("a") + search("b")

    @rebuno.tool
    def outer() -> str:
        return inner()

    no_drift(kernel, caplog, outer, lambda: [outer(), ship("a")])


def test_drift_in_a_body_that_runs_again_is_seen(kernel: Kernel) -> None:
    """There the calls of the body count."""
    inner = [search]

    @rebuno.tool
    def outer() -> str:
        found = inner[0]("a")
        if inner == [search]:
            raise KeyboardInterrupt
        return found

    with pytest.raises(KeyboardInterrupt):
        resumed(kernel, outer)
    inner[0] = search_all
    with pytest.raises(CodeChanged, match="search"):
        resumed(kernel, outer, strict=True)
    assert paid == []


@pytest.mark.parametrize("strict", [False, True])
def test_a_sibling_that_has_not_got_there_yet_is_no_drift(
    kernel: Kernel, caplog: pytest.LogCaptureFixture, strict: bool
) -> None:
    """Its recorded steps are met a moment later than a new step of another thread."""
    old = [True]
    new_step_waits = threading.Event()

    def slow() -> str:
        if not old:
            new_step_waits.wait(0.3)
        return search("a") + search("b")

    def handler() -> list[Any]:
        calls: list[Any] = [slow]
        if not old:
            calls.append((ship, "c"))
        return rebuno.parallel(calls)

    interrupted(kernel, handler)
    old.clear()
    assert resumed(kernel, handler, strict=strict) == ["found afound b", "shipped c"]
    assert reports(caplog) == []


def test_a_call_whose_turn_has_come_does_not_look_like_one_that_waits() -> None:
    """Else a thread that waits for the others would think that all of them wait."""
    turns = Turns()
    first, second = turns.turn("call"), turns.turn("call")
    moves: list[int] = []
    for turn in (first, second):
        with turn.kept():
            in_turn(lambda: None, moves.append)
    assert moves == []


def test_what_a_thread_hides_is_reported_at_the_end(
    kernel: Kernel, caplog: pytest.LogCaptureFixture
) -> None:
    """At the latest when the handler returns, also when nothing new was done; the record is of the
    execution."""
    interrupted(kernel, lambda: search("a"))
    caplog.handler.addFilter(of_the_execution := ExecutionFilter())

    def handler() -> str:
        return "nothing"

    assert resumed(kernel, handler) == "nothing"
    caplog.handler.removeFilter(of_the_execution)
    [report] = reports(caplog)
    assert "when it returned" in report
    [record] = [it for it in caplog.records if it.getMessage() == report]
    assert record.execution_id == kernel.list(limit=1).executions[0].id


def test_a_strict_attempt_stops_at_the_second_of_identical_calls_in_threads(
    kernel: Kernel,
) -> None:
    """The one in front meets what is recorded, and only then is the next one looked at."""
    interrupted(kernel, lambda: [ship("a"), search_all("b")])
    paid.clear()
    with pytest.raises(CodeChanged):
        resumed(kernel, lambda: rebuno.parallel([(search_all, "b")] * 4), strict=True)
    assert paid == []


# -- patched


def way(kernel: Kernel) -> str:
    return search_all("a") if rebuno.patched("all") else search("a")


def test_a_new_execution_takes_the_new_way(kernel: Kernel) -> None:
    """Nothing lies ahead of it."""
    assert resumed(kernel, lambda: way(kernel), strict=True) == "found all a"


def test_c38_an_old_execution_keeps_the_old_way(
    kernel: Kernel, caplog: pytest.LogCaptureFixture
) -> None:
    """What it recorded beyond that place is met; no drift, though the answer is a new step."""
    assert no_drift(kernel, caplog, lambda: search("a"), lambda: [way(kernel), ship("b")]) == [
        "found a",
        "shipped b",
    ]
    assert paid == []


def test_an_old_execution_that_has_not_got_there_takes_the_new_way(
    kernel: Kernel, caplog: pytest.LogCaptureFixture
) -> None:
    """What it recorded lies behind the place."""
    assert no_drift(kernel, caplog, lambda: ship("b"), lambda: [ship("b"), way(kernel)]) == [
        "shipped b",
        "found all a",
    ]


def test_a_step_of_the_old_way_that_was_cut_down_keeps_it(kernel: Kernel) -> None:
    """It may have happened, so the new way must not pay again."""

    @rebuno.tool("old_charge", idempotency="at_most_once")
    def cut() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resumed(kernel, cut)
    assert resumed(kernel, lambda: rebuno.patched("charge")) is False


@pytest.mark.parametrize("new", [True, False])
def test_an_answer_of_patched_never_changes(kernel: Kernel, new: bool) -> None:
    """Asked in a loop, and again in later attempts, also with other steps ahead or behind."""
    answers: list[bool] = []

    def handler() -> None:
        for n in range(3):
            answers.append(rebuno.patched("a change"))
            search(f"{n}")
        if len(answers) < 12:
            raise KeyboardInterrupt

    if not new:
        interrupted(kernel, lambda: [search("0"), search("1")])
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            resumed(kernel, handler)
    resumed(kernel, handler)
    assert answers == [new] * 12
    assert targets(kernel).count("patched") == 1


def test_patches_do_not_stand_in_each_others_way(kernel: Kernel) -> None:
    """The record of one is no step that lies ahead of another, and its removal no drift."""

    def asked(*names: str) -> list[bool]:
        return [rebuno.patched(name) for name in names]

    interrupted(kernel, lambda: asked("one", "two"))
    assert resumed(kernel, lambda: [asked("three", "two"), ship("a")], strict=True) == [
        *([True, True], "shipped a"),
    ]


def test_an_answer_of_patched_that_a_body_asked_for_is_the_executions(kernel: Kernel) -> None:
    """It is found again by the handler, though a replay does not run the body."""

    @rebuno.tool
    def asks() -> bool:
        return rebuno.patched("a change")

    def handler() -> list[bool]:
        answers = [asks(), rebuno.patched("a change")]
        ship("a")
        return answers

    interrupted(kernel, handler)
    assert resumed(kernel, handler, strict=True) == [True, True]
    assert targets(kernel).count("patched") == 1


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_patch_needs_a_name(kernel: Kernel, name: Any) -> None:
    """It is what the answer is found by."""
    with pytest.raises(rebuno.ExecutionFailed, match="needs a name"):
        resumed(kernel, lambda: rebuno.patched(name))


# -- replaying


def test_replaying_read_for_the_first_time_after_an_effect_is_right(kernel: Kernel) -> None:
    """Also when the first effect was cut down and ran again."""
    seen: list[bool] = []

    def handler() -> None:
        first = rebuno.execution().dispatch_attempt == 1
        with rebuno.ThreadPoolExecutor(1) as pool:
            if first:
                pool.submit(ship, "b").result()
            rebuno.step("a", cut_down if first else lambda: 1)
            seen.append(rebuno.execution().replaying)
            pool.submit(ship, "b").result()
        seen.append(rebuno.execution().replaying)

    with pytest.raises(KeyboardInterrupt):
        resumed(kernel, handler)
    resumed(kernel, handler)
    assert seen == [True, False]


def cut_down() -> int:
    raise KeyboardInterrupt


def test_replaying_is_over_when_only_calls_of_replayed_bodies_are_left(kernel: Kernel) -> None:
    """Nobody will meet those."""
    seen: list[bool] = []

    @rebuno.tool
    def outer() -> str:
        return search("a")

    def handler() -> None:
        seen.append(rebuno.execution().replaying)
        outer()
        seen.append(rebuno.execution().replaying)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resumed(kernel, handler)
    resumed(kernel, handler)
    assert seen == [False, False, True, False]
