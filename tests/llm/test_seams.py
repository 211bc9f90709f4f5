"""``begin_llm``, ``record_llm`` and ``fail_llm``: for recording clients of one's own making."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.attempts import attempt, created
from support.deciding_port import DecidingPort
from support.faulty_port import FaultyPort
from support.replays import model_calls

import rebuno_sync as rebuno
from rebuno_sync import PolicyError, RateLimited
from rebuno_sync.errors import APIError
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import DecisionKind, StepDecision

BODY = {"model": "m", "messages": ["hello"]}
ANSWER = {"status": 200, "headers": {"content-type": "application/json"}, "body": "{}"}


def test_a_call_is_begun_recorded_and_replayed(kernel: Kernel) -> None:
    """``proceed`` first, ``replay`` with what was recorded later."""
    execution_id = created(kernel)
    decisions: list[StepDecision] = []

    def handler(**_: Any) -> None:
        context = rebuno.execution()
        decision = context.begin_llm("m", BODY)
        decisions.append(decision)
        if decision.decision == DecisionKind.PROCEED:
            context.record_llm(decision.step_id, ANSWER)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attempt(kernel, execution_id, handler)
    attempt(kernel, execution_id, handler)
    first, second = decisions
    assert (first.decision, second.decision) == ("proceed", "replay")
    assert first.step_id == second.step_id
    assert second.result == ANSWER
    [step] = model_calls(kernel)
    assert (step.kind, step.target, step.args) == ("llm_call", "m", BODY)


def test_a_failure_is_replayed(kernel: Kernel) -> None:
    """As it was told."""
    execution_id = created(kernel)
    decisions: list[StepDecision] = []

    def handler(**_: Any) -> None:
        context = rebuno.execution()
        decision = context.begin_llm("m", BODY)
        decisions.append(decision)
        if decision.decision == DecisionKind.PROCEED:
            context.fail_llm(decision.step_id, {"message": "no luck"})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attempt(kernel, execution_id, handler)
    attempt(kernel, execution_id, handler)
    assert decisions[1].error == {"message": "no luck"}


@pytest.mark.parametrize("retry", [None, True])
def test_a_retry_goes_on_with_the_open_step(kernel: Kernel, retry: bool | None) -> None:
    """The same call from the same thread, with no primitive between."""

    def handler() -> None:
        context = rebuno.execution()
        first = context.begin_llm("m", BODY)
        context.fail_llm(first.step_id, {"message": "busy"}, final=False)
        second = context.begin_llm("m", BODY, retry=retry)
        assert second == first
        context.record_llm(second.step_id, ANSWER)
        third = context.begin_llm("m", BODY, retry=retry)
        assert third.step_id != first.step_id
        context.record_llm(third.step_id, ANSWER)

    rebuno.run(handler, kernel=kernel)
    assert [step.status for step in model_calls(kernel)] == ["succeeded", "succeeded"]


def _other_body(context: Any) -> Any:
    return context.begin_llm("m", {**BODY, "n": 2})


def _other_model(context: Any) -> Any:
    return context.begin_llm("m2", BODY)


def _said_to_be_new(context: Any) -> Any:
    return context.begin_llm("m", BODY, retry=False)


def _other_thread(context: Any) -> Any:
    with rebuno.ThreadPoolExecutor(1) as pool:
        return pool.submit(context.begin_llm, "m", BODY).result()


def _after_a_step(context: Any) -> Any:
    rebuno.step("between", lambda: None)
    return context.begin_llm("m", BODY)


def _in_another_body(context: Any) -> Any:
    begun = []

    @rebuno.tool
    def asks() -> None:
        begun.append(context.begin_llm("m", BODY))
        context.record_llm(begun[0].step_id, ANSWER)

    asks()
    return None


@pytest.mark.parametrize(
    "other",
    [_other_body, _other_model, _said_to_be_new, _other_thread, _after_a_step, _in_another_body],
)
def test_anything_else_is_another_call(kernel: Kernel, other: Callable[[Any], Any]) -> None:
    """What was open has failed, at the latest when the handler ends."""

    def handler() -> None:
        context = rebuno.execution()
        first = context.begin_llm("m", BODY)
        context.fail_llm(first.step_id, {"message": "busy"}, final=False)
        second = other(context)
        if second is not None:
            assert second.step_id != first.step_id
            context.record_llm(second.step_id, ANSWER)

    rebuno.run(handler, kernel=kernel)
    statuses = sorted(step.status for step in model_calls(kernel))
    assert statuses == ["failed", "succeeded"]


def test_a_call_that_is_never_recorded_fails_with_its_body(kernel: Kernel) -> None:
    """It is not left executing."""

    def handler() -> None:
        rebuno.execution().begin_llm("m", BODY)

    rebuno.run(handler, kernel=kernel)
    [step] = model_calls(kernel)
    assert step.error == {
        "message": "the body that began this model call ended before it was recorded"
    }


def test_what_is_no_json_is_refused_before_anything_is_submitted(kernel: Kernel) -> None:
    """With its path."""

    def handler() -> None:
        context = rebuno.execution()
        with pytest.raises(TypeError, match=r"args\.lock"):
            context.begin_llm("m", {"lock": threading.Lock()})
        decision = context.begin_llm("m", BODY)
        with pytest.raises(TypeError, match=r"response\.lock"):
            context.record_llm(decision.step_id, {"lock": threading.Lock()})
        context.record_llm(decision.step_id, ANSWER)
        with pytest.raises(ValueError, match="no model call with the step id"):
            context.record_llm(decision.step_id, ANSWER)

    rebuno.run(handler, kernel=kernel)
    [step] = model_calls(kernel)
    assert step.status == "succeeded"


def test_a_refusal_is_raised(kernel: Kernel) -> None:
    """As of every effect."""
    port = DecidingPort(kernel.agent)
    port.decisions += [
        StepDecision(DecisionKind.DENIED, "s", reason="too_dear", rule_id="r1"),
        StepDecision(DecisionKind.RATE_LIMITED, reason="slow_down"),
    ]

    def handler(**_: Any) -> None:
        context = rebuno.execution()
        with pytest.raises(PolicyError, match="too_dear"):
            context.begin_llm("m", BODY)
        with pytest.raises(RateLimited, match="slow_down"):
            context.begin_llm("m", BODY)

    assert attempt(kernel, created(kernel), handler, port=port).status == "completed"


def test_what_the_kernel_will_not_store_is_a_failure(kernel: Kernel) -> None:
    """The answer is not asked for again, live as on a replay."""
    port = FaultyPort(kernel.agent)
    port.refuse("complete_step", APIError("no NUL"), times=3)

    def handler(**_: Any) -> Any:
        context = rebuno.execution()
        decision = context.begin_llm("m", BODY)
        return context.record_llm(decision.step_id, ANSWER).error["message"]

    outcome = attempt(kernel, created(kernel), handler, port=port)
    assert "ran, value not storable" in outcome.output
    [step] = model_calls(kernel)
    assert step.status == "failed"
