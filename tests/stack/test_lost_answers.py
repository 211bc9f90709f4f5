"""What an attempt does when an answer of the kernel is lost, or is a refusal."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, field_serializer
from support.attempts import attempt, background, created
from support.faulty_port import FaultyPort
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync import APIError, StorageError, ToolError, ValidationError
from rebuno_sync.clock import ManualClock
from rebuno_sync.errors import NetworkError, api_error
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import StepStatus


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def kernel(tmp_path: Path, clock: ManualClock) -> Iterator[Kernel]:
    with Kernel(tmp_path / "kernel.db", clock=clock) as kernel:
        yield kernel


@pytest.fixture
def port(kernel: Kernel) -> FaultyPort:
    return FaultyPort(kernel.agent)


class Bodies:
    """A tool, and how often its body ran."""

    def __init__(self, idempotency: str = "safe_to_retry") -> None:
        self.count = 0
        self.tool = rebuno.tool("work", idempotency=idempotency)(self._body)

    def _body(self) -> str:
        self.count += 1
        return f"run {self.count}"


def handler_of(call: Callable[[], Any]) -> Callable[[], Any]:
    def handler() -> Any:
        return call()

    return handler


def quiet(fn: Callable[[], object]) -> Callable[[], None]:
    """A thread's target that ends without a word when the attempt is over."""

    def target() -> None:
        with contextlib.suppress(rebuno.Signal):
            fn()

    return target


def after_back_off(clock: ManualClock) -> None:
    """An interrupted attempt is followed by another one after a while."""
    clock.advance(60)


# -- a submit


@pytest.mark.parametrize("part", ["request", "reply"])
def test_a_lost_submit_ends_the_attempt_and_is_never_sent_again(
    kernel: Kernel, port: FaultyPort, clock: ManualClock, part: str
) -> None:
    """Nothing is reported, the lease is given back, and the next attempt goes on from there."""
    bodies = Bodies()
    execution_id = created(kernel)
    if part == "request":
        port.lose_request("submit")
    else:
        port.lose_reply("submit")
    outcome = attempt(kernel, execution_id, handler_of(bodies.tool), port=port)
    assert outcome.status == "interrupted"
    assert "answer was lost" in outcome.reason
    assert bodies.count == 0
    assert port.calls == ["get_execution", "submit", "release(interrupted)"]
    assert kernel.get(execution_id).status == "running"
    assert kernel.claim(execution_id) is None, "it is due after a back-off only"

    after_back_off(clock)
    outcome = attempt(kernel, execution_id, handler_of(bodies.tool))
    assert (outcome.status, outcome.output, bodies.count) == ("completed", "run 1", 1)
    assert len(kernel.list_steps(execution_id)) == 1


def test_a_submit_that_could_not_be_stored_ends_the_attempt_too(
    kernel: Kernel, port: FaultyPort, clock: ManualClock
) -> None:
    """A full disk in the middle of a run interrupts it; with room again it goes on."""
    bodies = Bodies()
    execution_id = created(kernel)
    port.refuse("submit", StorageError("the disk is full"))
    outcome = attempt(kernel, execution_id, handler_of(bodies.tool), port=port)
    assert (outcome.status, bodies.count) == ("interrupted", 0)
    assert "the disk is full" in outcome.reason
    after_back_off(clock)
    assert attempt(kernel, execution_id, handler_of(bodies.tool)).status == "completed"


def test_an_at_most_once_submit_whose_answer_is_lost_is_indeterminate_afterwards(
    kernel: Kernel, port: FaultyPort, clock: ManualClock
) -> None:
    """The kernel cannot know that the body never began, so the effect is not run."""
    bodies = Bodies("at_most_once")
    execution_id = created(kernel)
    port.lose_reply("submit")
    attempt(kernel, execution_id, handler_of(bodies.tool), port=port)
    after_back_off(clock)
    outcome = attempt(kernel, execution_id, handler_of(bodies.tool))
    assert outcome.status == "failed"
    assert isinstance(outcome.error, ToolError)
    assert outcome.error.reason == "indeterminate"
    assert bodies.count == 0


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (api_error("internal_error", "internal error", 500), APIError),
        (api_error("validation_error", "validation error: args", 400), ValidationError),
    ],
)
def test_a_refused_submit_is_the_handlers_error_and_records_nothing(
    kernel: Kernel, port: FaultyPort, error: APIError, kind: type[APIError]
) -> None:
    """The handler may handle it and call the effect again, which is then the first of its name."""
    bodies = Bodies()
    execution_id = created(kernel)
    port.refuse("submit", error)

    def handler() -> str:
        with pytest.raises(kind) as caught:
            bodies.tool()
        assert caught.value is error
        assert port.calls[-1] == "submit"
        return bodies.tool()

    outcome = attempt(kernel, execution_id, handler, port=port)
    assert (outcome.status, outcome.output) == ("completed", "run 1")
    [step] = kernel.list_steps(execution_id)
    assert step.occurrence == 0


# -- an outcome


def failing() -> str:
    raise ValueError("no")


def test_a_lost_answer_to_a_result_is_asked_for_again(kernel: Kernel, port: FaultyPort) -> None:
    """While the lease holds; the handler notices nothing but the delay."""
    bodies = Bodies()
    execution_id = created(kernel)
    port.lose_request("complete_step", times=2)
    port.lose_reply("complete_step", times=2)
    outcome = attempt(kernel, execution_id, handler_of(bodies.tool), port=port)
    assert (outcome.status, outcome.output, bodies.count) == ("completed", "run 1", 1)
    assert port.count("complete_step") == 5
    assert port.count("submit") == 1


def test_a_lost_answer_to_a_failure_is_asked_for_again(kernel: Kernel, port: FaultyPort) -> None:
    """The failure that was recorded is the one that the handler gets."""
    execution_id = created(kernel)
    port.lose_reply("fail_step")
    port.lose_request("fail_step")
    tool = rebuno.tool("work")(failing)

    def handler() -> str:
        with pytest.raises(ToolError, match="work: no") as caught:
            tool()
        return type(caught.value.__cause__).__name__

    outcome = attempt(kernel, execution_id, handler, port=port)
    assert (outcome.status, outcome.output) == ("completed", "ValueError")
    assert port.count("fail_step") == 3


@pytest.mark.parametrize("method", ["complete_step", "fail_step"])
def test_an_outcome_whose_answer_stays_lost_ends_the_attempt_with_the_lease(
    kernel: Kernel, port: FaultyPort, clock: ManualClock, method: str
) -> None:
    """It is not asked for any longer than the lease holds; what was recorded replays."""
    runs = []

    @rebuno.tool
    def work() -> str:
        runs.append(1)
        return "fine" if method == "complete_step" else failing()

    def handler() -> str:
        try:
            return work()
        except ToolError as error:
            return error.message

    def lost_for_good() -> None:
        clock.advance(1000)
        raise NetworkError("lost")

    execution_id = created(kernel)
    port.after(method, lost_for_good)
    outcome = attempt(kernel, execution_id, handler, port=port)
    assert outcome.status == "interrupted"
    assert port.count(method) == 1
    after_back_off(clock)
    outcome = attempt(kernel, execution_id, handler)
    assert outcome.output == ("fine" if method == "complete_step" else "no")
    assert runs == [1]


REFUSALS = [
    api_error("validation_error", "invalid result", 400),
    APIError("too large", "validation_error", 413),
    api_error("internal_error", "internal error", 500),
]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_c32_a_result_that_the_kernel_refuses_becomes_a_failure_of_its_effect(
    kernel: Kernel, port: FaultyPort, clock: ManualClock, refusal: APIError
) -> None:
    """Three tries, then "not storable by this kernel": the effect is not repeated, live and
    replayed raise the same, the execution goes on."""
    bodies = Bodies()
    execution_id = created(kernel)
    port.refuse("complete_step", refusal, times=3)
    errors: list[ToolError] = []

    def handler() -> str:
        with pytest.raises(ToolError) as caught:
            bodies.tool()
        errors.append(caught.value)
        if len(errors) == 1:
            raise KeyboardInterrupt
        return "went on"

    with pytest.raises(KeyboardInterrupt):
        attempt(kernel, execution_id, handler, port=port)
    outcome = attempt(kernel, execution_id, handler)
    assert (outcome.status, outcome.output, bodies.count) == ("completed", "went on", 1)
    live, replayed = errors
    assert (str(live), live.step_id) == (str(replayed), replayed.step_id)
    assert "not storable by this kernel" in str(live)
    assert refusal.message in str(live)
    assert port.count("complete_step") == 3
    [step] = kernel.list_steps(execution_id)
    assert step.status == "failed"
    assert step.error["repr"] == repr('"run 1"')


@pytest.mark.parametrize("refusal", REFUSALS)
def test_c32_a_failure_that_the_kernel_refuses_is_recorded_in_other_words(
    kernel: Kernel, port: FaultyPort, refusal: APIError
) -> None:
    """An exception's text may be what the kernel will not store: no reason to repeat its effect."""
    execution_id = created(kernel)
    port.refuse("fail_step", refusal, times=3)
    tool = rebuno.tool("work")(failing)

    def handler() -> str:
        with pytest.raises(ToolError, match="not storable by this kernel"):
            tool()
        return "went on"

    outcome = attempt(kernel, execution_id, handler, port=port)
    assert (outcome.status, outcome.output) == ("completed", "went on")
    [step] = kernel.list_steps(execution_id)
    assert "ValueError" in step.error["repr"]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_that_passes_is_not_held_against_the_result(
    kernel: Kernel, port: FaultyPort, refusal: APIError
) -> None:
    """The third try counts like the first."""
    bodies = Bodies()
    port.refuse("complete_step", refusal, times=2)
    outcome = attempt(kernel, created(kernel), handler_of(bodies.tool), port=port)
    assert (outcome.status, outcome.output) == ("completed", "run 1")


def test_a_kernel_that_records_no_outcome_at_all_interrupts_the_attempt(
    kernel: Kernel, port: FaultyPort
) -> None:
    """Neither the result nor its failure: nothing may follow an outcome that is not recorded."""
    bodies = Bodies()
    execution_id = created(kernel)
    port.refuse("complete_step", REFUSALS[2], times=3)
    port.refuse("fail_step", REFUSALS[2], times=3)
    outcome = attempt(kernel, execution_id, handler_of(bodies.tool), port=port)
    assert outcome.status == "interrupted"
    assert kernel.get(execution_id).status == "running"


@pytest.mark.parametrize("status", [401, 403, 404])
@pytest.mark.parametrize("method", ["complete_step", "complete"])
def test_a_refusal_of_the_sender_ends_the_attempt_and_says_nothing_of_the_value(
    kernel: Kernel, port: FaultyPort, clock: ManualClock, status: int, method: str
) -> None:
    """At once, as interrupted: an outcome is not recorded as not storable, and an output does not
    fail its execution; the next attempt goes on."""
    bodies = Bodies()
    execution_id = created(kernel)
    port.refuse(method, APIError("a wrong secret", "unauthorized", status))
    assert attempt(kernel, execution_id, handler_of(bodies.tool), port=port).status == "interrupted"
    assert (port.count(method), port.count("fail_step"), port.count("fail")) == (1, 0, 0)
    clock.advance(1000)
    outcome = attempt(kernel, execution_id, handler_of(bodies.tool))
    assert (outcome.status, bodies.count) == ("completed", 2 if method == "complete_step" else 1)


@pytest.mark.parametrize("status", [408, 425, 429, 503, 507])
@pytest.mark.parametrize("method", ["complete_step", "fail_step", "complete"])
def test_a_kernel_that_is_too_busy_for_an_outcome_is_asked_again(
    kernel: Kernel, port: FaultyPort, status: int, method: str
) -> None:
    """More often than a value that it refuses, and the attempt goes on when it takes it."""
    bodies = Bodies()
    port.refuse(method, APIError("slow down", "rate_limited", status), times=4)

    def handler() -> str:
        if method != "fail_step":
            return bodies.tool()
        with pytest.raises(ToolError, match="no"):
            rebuno.tool("work")(failing)()
        return "run 1"

    outcome = attempt(kernel, created(kernel), handler, port=port)
    assert (outcome.status, outcome.output) == ("completed", "run 1")
    assert port.count(method) == 5
    assert port.count("fail") == 0


def test_a_kernel_that_is_too_busy_for_longer_than_a_lease_interrupts_the_attempt(
    tmp_path: Path,
) -> None:
    """Nothing is recorded, and nothing follows."""
    bodies = Bodies()
    with Kernel(tmp_path / "short.db", lease_timeout=0.4) as kernel:
        port = FaultyPort(kernel.agent)
        busy = APIError("slow down", "rate_limited", 429)
        port.refuse("complete_step", busy, times=1000)
        port.refuse("renew", NetworkError("no answer"), times=1000)
        execution_id = created(kernel)
        outcome = attempt(kernel, execution_id, handler_of(bodies.tool), port=port)
        assert outcome.status == "interrupted"
        assert port.count("fail_step") == 0
        assert bodies.count == 1


def superseded() -> APIError:
    return api_error("lease_superseded", "dispatch lease superseded", 409)


@pytest.mark.parametrize("method", ["submit", "complete_step", "complete", "fail"])
def test_a_lost_lease_ends_the_attempt_wherever_the_kernel_says_so(
    kernel: Kernel, port: FaultyPort, method: str
) -> None:
    """Nothing is tried again, nothing else is reported, and there is no lease to give back."""
    bodies = Bodies()
    execution_id = created(kernel)
    port.refuse(method, superseded())

    def handler() -> str:
        bodies.tool()
        if method == "fail":
            raise ValueError("no")
        return "done"

    outcome = attempt(kernel, execution_id, handler, port=port)
    assert outcome.status == "lease_superseded"
    assert port.calls[-1] == method
    assert port.count(method) == 1
    assert kernel.get(execution_id).status == "running"


@pytest.mark.parametrize("ended_as", ["result", "error"])
def test_an_effect_that_another_attempt_settled_otherwise_gives_the_old_one_nothing(
    kernel: Kernel, clock: ManualClock, ended_as: str
) -> None:
    """The old attempt learns from the kernel's empty answer that it is one; it gets no value."""
    execution_id = created(kernel)
    in_body, settled = threading.Event(), threading.Event()
    got: list[object] = []

    @rebuno.tool
    def work() -> str:
        in_body.set()
        settled.wait(20)
        if ended_as == "error":
            raise ValueError("of the old one")
        return "of the old one"

    def handler() -> None:
        try:
            got.append(work())
        except Exception as error:
            got.append(error)

    with background(lambda: attempt(kernel, execution_id, handler)) as old:
        in_body.wait(20)
        clock.advance(1000)
        claim = kernel.claim(execution_id)
        assert claim is not None
        [step] = kernel.list_steps(execution_id)
        if ended_as == "error":
            kernel.agent.complete_step(claim.lease, step.step_id, '"of the new one"')
        else:
            kernel.agent.fail_step(claim.lease, step.step_id, '{"message": "of the new one"}')
        settled.set()
        assert old.result().status == "lease_superseded"
    assert got == []


# -- the end


def test_a_lost_answer_to_the_completion_is_settled_by_reading(
    kernel: Kernel, port: FaultyPort
) -> None:
    """The repeated one is refused as ``execution_terminal``; the execution tells who ended it."""
    execution_id = created(kernel)
    port.lose_reply("complete")
    port.before("get_execution", lambda: None)  # the one at the start gets through
    port.lose_request("get_execution")
    outcome = attempt(kernel, execution_id, handler_of(lambda: {"a": [1]}), port=port)
    assert (outcome.status, outcome.output) == ("completed", {"a": [1]})
    assert port.calls[1:] == ["complete", "complete", "get_execution", "get_execution"]
    assert kernel.get(execution_id).output == {"a": [1]}


def test_a_lost_answer_to_the_failure_is_settled_by_reading(
    kernel: Kernel, port: FaultyPort
) -> None:
    """The outcome is the failure, with the handler's exception."""
    execution_id = created(kernel)
    port.lose_reply("fail")
    outcome = attempt(kernel, execution_id, handler_of(failing), port=port)
    assert (outcome.status, outcome.reason) == ("failed", "agent_error: ValueError: no")
    assert isinstance(outcome.error, ValueError)
    assert kernel.get(execution_id).failure_reason == outcome.reason


@pytest.mark.parametrize(("method", "handler"), [("complete", lambda: 1), ("fail", failing)])
def test_a_completion_that_lost_against_a_cancel_is_terminated(
    kernel: Kernel, port: FaultyPort, method: str, handler: Callable[[], Any]
) -> None:
    """Reading the execution tells a cancel from our own earlier try."""
    execution_id = created(kernel)
    port.lose_request(method)
    port.before(method, lambda: kernel.cancel(execution_id))
    outcome = attempt(kernel, execution_id, handler_of(handler), port=port)
    assert outcome.status == "terminated"
    assert kernel.get(execution_id).status == "cancelled"


def test_the_output_of_an_execution_that_another_attempt_completed_is_the_recorded_one(
    kernel: Kernel, port: FaultyPort, clock: ManualClock
) -> None:
    """What comes back is what is recorded, not what this attempt computed."""
    execution_id = created(kernel)

    def complete_elsewhere() -> None:
        clock.advance(1000)
        attempt(kernel, execution_id, handler_of(lambda: "of the new one"))

    port.before("complete", complete_elsewhere)
    outcome = attempt(kernel, execution_id, handler_of(lambda: "of the old one"), port=port)
    assert (outcome.status, outcome.output) == ("completed", "of the new one")


@pytest.mark.parametrize("method", ["complete", "fail"])
def test_an_end_whose_answer_stays_lost_is_interrupted(
    kernel: Kernel, port: FaultyPort, clock: ManualClock, method: str
) -> None:
    """Nobody knows whether it ended; the next claim will tell."""

    def lost_for_good() -> None:
        clock.advance(1000)
        raise NetworkError("lost")

    execution_id = created(kernel)
    port.before(method, lost_for_good)
    handler = handler_of(failing if method == "fail" else lambda: 1)
    outcome = attempt(kernel, execution_id, handler, port=port)
    assert outcome.status == "interrupted"
    assert kernel.get(execution_id).status == "running"
    after_back_off(clock)
    attempt(kernel, execution_id, handler)
    assert kernel.get(execution_id).status.terminal


def test_an_execution_that_cannot_be_read_is_not_begun(kernel: Kernel, port: FaultyPort) -> None:
    """The handler does not run, and the outcome says so."""
    runs: list[int] = []
    port.lose_request("get_execution")
    outcome = attempt(kernel, created(kernel), handler_of(lambda: runs.append(1)), port=port)
    assert (outcome.status, runs) == ("interrupted", [])


def test_an_execution_that_has_ended_is_skipped(kernel: Kernel, port: FaultyPort) -> None:
    """A delivery that comes after the end does nothing."""
    runs: list[int] = []
    execution_id = created(kernel)
    port.before("get_execution", lambda: kernel.cancel(execution_id))
    outcome = attempt(kernel, execution_id, handler_of(lambda: runs.append(1)), port=port)
    assert (outcome.status, runs) == ("skipped", [])


# -- while a body runs


def test_a_body_that_runs_when_the_lease_ends_still_sends_its_outcome(
    kernel: Kernel, port: FaultyPort
) -> None:
    """The flag alone decides nothing: the kernel's fence does, and here it lets the result in."""
    execution_id = created(kernel)

    @rebuno.tool
    def work() -> str:
        rebuno.execution()._lease.end()
        return "done all the same"

    outcome = attempt(kernel, execution_id, handler_of(work), port=port)
    assert outcome.status == "lease_superseded"
    [step] = kernel.list_steps(execution_id)
    assert (step.status, step.result) == (StepStatus.SUCCEEDED, "done all the same")


def test_a_body_that_runs_when_its_execution_is_cancelled_cannot_record(
    kernel: Kernel, port: FaultyPort
) -> None:
    """Its outcome is sent and refused; the attempt is terminated."""
    execution_id = created(kernel)
    after: list[int] = []

    @rebuno.tool
    def work() -> str:
        kernel.cancel(execution_id)
        return "too late"

    def handler() -> None:
        work()
        after.append(1)

    outcome = attempt(kernel, execution_id, handler, port=port)
    assert (outcome.status, after) == ("terminated", [])
    assert port.count("complete_step") == 1
    [step] = kernel.list_steps(execution_id)
    assert (step.status, step.result) == (StepStatus.CANCELLED, None)


def test_a_process_that_was_stopped_for_longer_than_its_lease_starts_no_body(
    kernel: Kernel, port: FaultyPort, clock: ManualClock
) -> None:
    """The age of the lease is looked at just before the body, by this machine's own clock."""
    bodies = Bodies()
    port.after("submit", lambda: clock.advance(1000))
    outcome = attempt(kernel, created(kernel), handler_of(bodies.tool), port=port)
    assert (outcome.status, bodies.count) == ("lease_superseded", 0)
    assert "ran out before the body started" in outcome.reason


def test_an_interrupted_attempt_keeps_its_lease_until_its_other_bodies_have_recorded(
    tmp_path: Path,
) -> None:
    """The lease is renewed while they run, and given back after the last outcome."""
    with Kernel(tmp_path / "real-time.db", lease_timeout=0.6) as kernel:
        port = FaultyPort(kernel.agent)
        execution_id = created(kernel)
        running, finished = threading.Event(), threading.Event()

        @rebuno.tool
        def slow() -> str:
            running.set()
            port.lose_request("submit")
            wait_until(lambda: port.count("submit") == 2, "the second submit")
            beats = port.count("renew")
            wait_until(lambda: port.count("renew") >= beats + 4, "a lease's worth of heartbeats")
            return "recorded"

        @rebuno.tool
        def other() -> None:
            pass

        def beside() -> None:
            try:
                slow()
            finally:
                finished.set()

        def handler() -> None:
            threading.Thread(target=quiet(rebuno.carry(beside)), daemon=True).start()
            running.wait(20)
            other()

        outcome = attempt(kernel, execution_id, handler, port=port)
        assert outcome.status == "interrupted"
        assert finished.wait(20)
        assert port.calls[-2:] == ["complete_step", "release(interrupted)"]
        [step] = kernel.list_steps(execution_id)
        assert (step.status, step.result) == (StepStatus.SUCCEEDED, "recorded")


def test_a_refused_release_is_no_trouble(kernel: Kernel, port: FaultyPort) -> None:
    """A lease that was lost meanwhile needs no giving back."""
    port.lose_reply("submit")
    port.refuse("release(interrupted)", superseded())
    outcome = attempt(kernel, created(kernel), handler_of(Bodies().tool), port=port)
    assert outcome.status == "interrupted"


def test_nothing_is_completed_over_an_outcome_that_was_lost_after_the_handler_returned(
    kernel: Kernel, port: FaultyPort, clock: ManualClock
) -> None:
    """An effect that the handler left running in a thread counts until it is recorded."""
    execution_id = created(kernel)
    running, returned = threading.Event(), threading.Event()

    class Output(BaseModel):
        n: int

        @field_serializer("n")
        def seen(self, value: int) -> int:
            returned.set()
            return value

    @rebuno.tool
    def beside() -> str:
        running.set()
        returned.wait(20)
        return "done"

    def handler() -> Output:
        threading.Thread(target=quiet(rebuno.carry(beside)), daemon=True).start()
        running.wait(20)
        return Output(n=1)

    handler.__annotations__["return"] = Output

    def lost_for_good() -> None:
        clock.advance(1000)
        raise NetworkError("lost")

    port.after("complete_step", lost_for_good)
    outcome = attempt(kernel, execution_id, handler, port=port)
    assert outcome.status == "interrupted"
    assert "complete" not in port.calls
    assert kernel.get(execution_id).status == "running"
