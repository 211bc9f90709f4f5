"""Random histories of one execution against a model in a dozen lines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import LeaseKey, StepDecision, StepStatus

from .moves import AGENT, attempt, call, once

CALLS = ["a", "b", "c"]
ENDS = {"step.succeeded", "step.failed", "step.denied", "step.cancelled"}

submits = st.tuples(st.just("submit"), st.sampled_from(CALLS), st.booleans())
outcomes = st.tuples(
    st.sampled_from(["complete", "fail"]),
    st.integers(0, 50),
    st.sampled_from([1, None, "x", {"reason": "indeterminate"}]),
)
attempts = st.tuples(st.sampled_from(["crash", "release", "interrupt"]), st.none(), st.none())
histories = st.lists(st.one_of(submits, submits, outcomes, attempts), max_size=40)


class Recorded(NamedTuple):
    """What the model knows of one step."""

    step_id: str
    status: StepStatus
    value: Any = None


class Model:
    """The rules of protocol.md 6.3, 7.2, 7.3 and 8 on a dict."""

    def __init__(self) -> None:
        self.steps: dict[tuple[str, int], Recorded] = {}
        self.next: Counter[str] = Counter()

    def submit(self, target: str, strict: bool, found: StepDecision) -> None:
        """Check a decision and take it over."""
        key = target, self.next[target]
        self.next[target] += 1
        known = self.steps.get(key)
        if known is None:
            denied = strict and any(
                step.status == "failed"
                and isinstance(step.value, dict)
                and step.value.get("reason") == "indeterminate"
                for (other, _), step in self.steps.items()
                if other == target
            )
            assert found.decision == ("denied" if denied else "proceed")
            assert found.step_id not in {step.step_id for step in self.steps.values()}
            status = StepStatus.DENIED if denied else StepStatus.EXECUTING
            self.steps[key] = Recorded(found.step_id, status)
            return
        assert found.step_id == known.step_id
        if known.status == "executing" and strict:
            assert (found.decision, found.error["reason"]) == ("replay", "indeterminate")
            self.steps[key] = Recorded(known.step_id, StepStatus.FAILED, found.error)
        elif known.status == "executing":
            assert found.decision == "proceed"
        elif known.status == "denied":
            assert found.decision == "denied"
        else:
            assert found.decision == "replay"
            value = found.error if known.status == "failed" else found.result
            assert value == known.value

    def settle(
        self, key: tuple[str, int], status: StepStatus, value: object, found: StepDecision
    ) -> None:
        """Check the answer to an outcome and take it over."""
        known = self.steps[key]
        if known.status == "executing":
            assert found.decision == "recorded"
            self.steps[key] = known._replace(status=status, value=value)
        else:
            assert found.decision == "replay"
            if known.status == status:
                assert (found.error if status == "failed" else found.result) == known.value


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kernel, ManualClock]]:
    """One kernel for all histories: each is an execution of its own."""
    clock = ManualClock()
    folder = tmp_path_factory.mktemp("histories")
    with Kernel(folder / "kernel.db", max_attempts=1000, clock=clock) as kernel:
        kernel.register_agent(AGENT)
        yield kernel, clock


def _again(kernel: Kernel, clock: ManualClock, lease: LeaseKey, how: str) -> LeaseKey:
    if how == "crash":
        clock.advance(121)
    else:
        kernel.agent.release(lease, interrupted=how == "interrupt")
        if how == "interrupt":
            clock.advance(38)
    return attempt(kernel, lease.execution_id)


@settings(max_examples=120, deadline=None)
@given(history=histories)
def test_any_history_agrees_with_the_model(
    shared: tuple[Kernel, ManualClock], history: list[tuple[str, Any, Any]]
) -> None:
    """Whatever is submitted, settled, cut down and replayed: what is recorded never changes.

    Replays give the recorded values in the same order for each call, occurrences and events are
    contiguous, and each step has one end.
    """
    kernel, clock = shared
    model = Model()
    lease = attempt(kernel, kernel.create(AGENT).id)
    for move, first, second in history:
        if move == "submit":
            proposal = once(first) if second else call(first)
            model.submit(first, second, kernel.agent.submit(lease, proposal))
        elif move in ("complete", "fail"):
            if model.steps:
                key = list(model.steps)[first % len(model.steps)]
                failing = move == "fail"
                send = kernel.agent.fail_step if failing else kernel.agent.complete_step
                found = send(lease, model.steps[key].step_id, json.dumps(second))
                status = StepStatus.FAILED if failing else StepStatus.SUCCEEDED
                model.settle(key, status, second, found)
        else:
            lease = _again(kernel, clock, lease, move)
            model.next.clear()
    _agree(kernel, lease.execution_id, model)
    kernel.agent.complete(lease, "null")
    _agree(kernel, lease.execution_id, model)


def _agree(kernel: Kernel, execution_id: str, model: Model) -> None:
    steps = {step.step_id: step for step in kernel.list_steps(execution_id)}
    assert len(steps) == len(model.steps)
    for (target, occurrence), known in model.steps.items():
        step = steps[known.step_id]
        assert (step.target, step.occurrence, step.status) == (target, occurrence, known.status)
        if known.status != "denied":
            assert (step.error if known.status == "failed" else step.result) == known.value
    for target in CALLS:
        places = sorted(place for other, place in model.steps if other == target)
        assert places == list(range(len(places)))
    events = kernel.events(execution_id, limit=1000)
    assert [event.event_seq for event in events] == list(range(1, len(events) + 1))
    ended = Counter(event.payload["step_id"] for event in events if event.type in ENDS)
    assert ended == {s.step_id: 1 for s in model.steps.values() if s.status.terminal}
