"""Outcomes that travel with the next request (``batch`` of protocol.md 17): never at a price."""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.services import Service
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync import Interrupted
from rebuno_sync.types import LARGEST_BATCH


@rebuno.tool
def double(number: int) -> int:
    return 2 * number


def chain(length: int) -> int:
    value = 1
    for _ in range(length):
        value = double(value)
    return value


def operations(service: Service) -> list[list[str]]:
    """What each batch carried, in order."""
    return [
        [it["op"] for it in json.loads(request.body)["operations"]]
        for request in service.wire.of("batch")
    ]


def mutations(service: Service) -> list[str]:
    wanted = ("steps", "complete", "fail", "batch", "release")
    return [
        request.last
        for request in service.wire.requests
        if request.last in wanted and request.method == "POST"
    ]


# -- what travels with what


def test_an_outcome_travels_with_the_next_submit_and_the_last_with_the_end(
    service: Service,
) -> None:
    """A chain of effects takes one request each, and one to begin."""
    service.agent(chain)
    assert service.run({"length": 5}) == 32
    carried = operations(service)
    # An outcome that waited for 2 ms on a busy machine has gone alone: it is then in no batch.
    alone = mutations(service).count("complete")
    assert Counter(op for batch in carried for op in batch)["complete_step"] + alone >= 5
    assert all(batch[0] == "complete_step" for batch in carried)
    assert {batch[-1] for batch in carried} <= {"submit", "complete"}


def test_a_kernel_that_names_no_batch_gets_none(tmp_path: Path) -> None:
    with Service(tmp_path, extensions=False) as service:
        service.agent(chain)
        assert service.run({"length": 3}) == 8
        assert service.wire.of("batch") == []
        assert Counter(mutations(service)) == {"steps": 3, "complete": 4}


@pytest.mark.parametrize("kind", ["at_most_once", "llm_call", "failure"])
def test_what_must_not_be_done_twice_is_recorded_before_the_handler_goes_on(
    service: Service, kind: str
) -> None:
    """An at-most-once effect, a model call, and a failure, which the handler may act upon."""
    open_after: list[int] = []

    def failing() -> None:
        raise ValueError("no")

    def handler() -> None:
        execution = rebuno.execution()
        for _ in range(5):
            if kind == "at_most_once":
                rebuno.step("once", lambda: 1, idempotency="at_most_once")
            elif kind == "llm_call":
                execution.invoke_tool("model", {}, lambda: 1, kind="llm_call")
            else:
                with pytest.raises(rebuno.ToolError):
                    rebuno.step("failing", failing)
            steps = service.kernel.list_steps(execution.id)
            open_after.append(sum(step.status == "executing" for step in steps))

    service.agent(handler)
    service.run()
    assert open_after == [0] * 5


def test_an_outcome_is_on_its_way_though_the_handler_does_nothing(service: Service) -> None:
    """It waits for no request of the handler's."""
    recorded = threading.Event()

    def handler() -> bool:
        double(1)
        return recorded.wait(20)

    service.wire.after("complete", recorded.set)
    service.agent(handler)
    assert service.run() is True


def test_an_inner_effects_outcome_goes_before_its_outers(service: Service) -> None:
    """In one request, in order."""

    @rebuno.tool
    def outer() -> int:
        return double(1)

    service.agent(lambda: outer())
    assert service.run() == 2
    steps = {step.target: step for step in service.client.list_steps(service_id(service))}
    events = [
        event.payload["step_id"]
        for event in service.client.events(service_id(service))
        if event.type == "step.succeeded"
    ]
    assert events == [steps["double"].step_id, steps["outer"].step_id]


def service_id(service: Service) -> str:
    return service.client.list().executions[0].id


def test_large_outcomes_travel_alone(service: Service) -> None:
    """A batch stays far below what a kernel takes."""

    @rebuno.tool
    def large(number: int) -> str:
        return "x" * 3_000_000

    def handler() -> int:
        return sum(len(large(number)) for number in range(4))

    service.agent(handler)
    assert service.run() == 12_000_000
    assert all(len(request.body) < 1_000_000 for request in service.wire.of("batch"))


# -- the rule


def test_no_body_starts_before_the_outcome_before_it_is_recorded(service: Service) -> None:
    """In a chain, and in threads that share an execution: whatever a body may have seen of another
    effect is recorded."""
    missing: list[str] = []
    guard = threading.Lock()
    ended: set[int] = set()

    @rebuno.tool
    def watchful(number: int) -> int:
        with guard:
            seen = len(ended)
        steps = service.kernel.list_steps(rebuno.execution().id)
        recorded = sum(step.status == "succeeded" for step in steps)
        if recorded < seen:
            missing.append(f"{recorded} of {seen} recorded as {number} starts")
        return number

    def one(lane: int) -> None:
        for number in range(8):
            with guard:
                pass
            watchful(100 * lane + number)
            with guard:
                ended.add(100 * lane + number)

    def handler(lanes: int) -> int:
        with rebuno.ThreadPoolExecutor(lanes) as pool:
            list(pool.map(one, range(lanes)))
        return len(ended)

    service.agent(handler)
    assert service.run({"lanes": 1}) == 8
    ended.clear()
    assert service.run({"lanes": 6}) == 48
    # A body that had started before the outcome was known to anybody may well have missed it.
    assert [text for text in missing if text.startswith("0 of")] == []
    assert len(missing) <= 6


def test_nothing_is_completed_before_every_outcome_is_recorded(service: Service) -> None:
    service.agent(chain)
    service.wire.lose_reply("batch", times=3)
    execution = service.client.create("served", {"length": 4})
    service.client.wait(execution.id, timeout=20)
    assert {step.status for step in service.client.list_steps(execution.id)} == {"succeeded"}


# -- what goes wrong


def test_c33_on_a_lossy_line_nothing_is_doubled_and_nothing_lost(tmp_path: Path) -> None:
    """Every reply may be lost after the kernel has committed: with request ids each effect is done
    once, in chains and in threads, and no attempt is lost."""
    bodies: Counter[str] = Counter()

    @rebuno.tool
    def work(name: str) -> str:
        bodies[f"{rebuno.execution().id} {name}"] += 1
        return name

    def handler(lanes: int) -> int:
        def one(lane: int) -> int:
            return sum(len(work(f"{lane}-{number}")) for number in range(6))

        with rebuno.ThreadPoolExecutor(lanes) as pool:
            return sum(pool.map(one, range(lanes)))

    with Service(tmp_path) as service:
        service.agent(handler)
        for word in ("steps", "batch", "complete", "fail"):
            for _ in range(12):
                for _ in range(4):
                    service.wire.before(word, lambda: None)
                service.wire.lose_reply(word)
        ids = [service.client.create("served", {"lanes": n % 3 + 1}).id for n in range(9)]
        for number, one in enumerate(ids):
            done = service.client.wait(one, timeout=60)
            assert done.output == 3 * 6 * (number % 3 + 1)
            events = [event.type for event in service.client.events(one, limit=1000)]
            assert events.count("dispatch.acked") == 1
    assert set(bodies.values()) == {1}


def refused(code: str, status: int) -> bytes:
    body = {"code": code, "message": "refused by the test"}
    return json.dumps({"results": [{"status": status, "body": body}]}).encode()


def test_an_outcome_that_is_refused_once_is_asked_for_again(service: Service) -> None:
    """Alone; what should have travelled with it follows."""
    service.agent(chain)
    service.wire.refuse("batch", 200, refused("internal_error", 500), times=2)
    execution = service.client.create("served", {"length": 6})
    assert service.client.wait(execution.id, timeout=20).output == 64
    events = [event.type for event in service.client.events(execution.id, limit=1000)]
    assert events.count("dispatch.acked") == 1
    assert events.count("step.failed") == 0


def test_a_batch_that_is_refused_as_a_whole_is_sent_one_by_one(service: Service) -> None:
    service.agent(chain)
    envelope = b'{"code": "validation_error", "message": "no batches today"}'
    service.wire.refuse("batch", 400, envelope, times=3)
    assert service.run({"length": 6}) == 64


def test_an_outcome_that_is_refused_for_good_ends_the_attempt(service: Service) -> None:
    """The handler has gone on with it, so it must not act any further; the next attempt meets the
    failure, and the effect is not done again."""
    bodies: list[int] = []
    second: list[int] = []

    @rebuno.tool
    def first() -> str:
        bodies.append(1)
        return "cannot be stored"

    def handler() -> str:
        try:
            first()
        except rebuno.ToolError as error:
            return error.message
        rebuno.step("second", lambda: second.append(rebuno.execution().dispatch_attempt))
        return "stored"

    agent = service.agent(handler)
    envelope = b'{"code": "internal_error", "message": "no"}'
    service.wire.refuse("batch", 200, refused("internal_error", 500), times=3)
    service.wire.refuse("complete", 500, envelope, times=2)
    assert "not storable by this kernel" in service.run()
    assert bodies == [1]
    assert second == [], "nothing followed an outcome that is not recorded"
    assert agent.join(20)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_of_the_sender_says_nothing_of_a_result_that_is_held(
    service: Service, status: int
) -> None:
    """The attempt ends at once, and nothing is recorded as not storable."""
    service.agent(chain)
    envelope = b'{"code": "forbidden", "message": "not you"}'
    service.wire.refuse("batch", 200, refused("forbidden", status))
    execution = service.client.create("served", {"length": 6})
    assert service.client.wait(execution.id, timeout=20).output == 64
    service.wire.refuse("batch", 400, envelope)  # As a whole: each is sent by itself.
    service.wire.refuse("complete", status, envelope)
    second = service.client.create("served", {"length": 6})
    assert service.client.wait(second.id, timeout=20).output == 64
    for one in (execution, second):
        events = [event.type for event in service.client.events(one.id, limit=1000)]
        assert events.count("dispatch.acked") == 2
        assert events.count("step.failed") == 0


def test_a_kernel_that_is_too_busy_for_a_held_result_is_asked_again(service: Service) -> None:
    """In the same attempt, as often as it takes."""
    service.agent(chain)
    envelope = b'{"code": "rate_limited", "message": "slow down"}'
    service.wire.refuse("batch", 200, refused("rate_limited", 429))
    service.wire.refuse("complete", 429, envelope, times=4)
    execution = service.client.create("served", {"length": 6})
    assert service.client.wait(execution.id, timeout=20).output == 64
    events = [event.type for event in service.client.events(execution.id, limit=1000)]
    assert events.count("dispatch.acked") == 1
    assert events.count("step.failed") == 0


def test_what_other_bodies_did_is_recorded_though_the_attempt_is_given_up(
    service: Service,
) -> None:
    """One thread's outcome is refused for good while the other's body runs; that one is not done
    again."""
    bodies: Counter[str] = Counter()
    refused_for_good = threading.Event()

    def slow() -> str:
        bodies["slow"] += 1
        assert refused_for_good.wait(20)
        return "slow"

    def refused_one() -> str:
        bodies["refused"] += 1
        return "cannot be stored"

    def first() -> None:
        with suppress(rebuno.ToolError):
            rebuno.step("refused", refused_one)

    def handler() -> str:
        with rebuno.ThreadPoolExecutor(2) as pool:
            slow_one = pool.submit(rebuno.step, "slow", slow)
            wait_until(lambda: bodies["slow"], "the slow body")
            pool.submit(first).result()
            return str(slow_one.result())

    envelope = b'{"code": "internal_error", "message": "no"}'
    service.wire.refuse("complete", 500, envelope, times=3)
    service.wire.after("fail", refused_for_good.set)
    service.agent(handler)
    assert service.run() == "slow"
    assert bodies == {"slow": 1, "refused": 1}


@pytest.mark.parametrize("way", ["batch", "complete"])
def test_an_outcome_that_another_attempt_has_settled_ends_the_attempt(
    tmp_path: Path, way: str
) -> None:
    """What the handler has seen is not what is recorded; whether it had travelled with another
    request or, since the handler took its time, alone."""
    attempts: list[int] = []
    sent_alone = threading.Event()

    def handler() -> int:
        attempts.append(rebuno.execution().dispatch_attempt)
        value = double(1)
        if way == "complete" and len(attempts) == 1:
            sent_alone.wait(20)
        return double(value)

    with Service(tmp_path, lease_timeout=0.8) as service:
        service.agent(handler)
        answer = {"decision": "replay", "result": "another's"}
        if way == "batch":
            results = {"results": [{"status": 200, "body": answer}]}
            service.wire.refuse("batch", 200, json.dumps(results).encode())
        else:
            refusal = json.dumps(answer).encode()
            service.wire.refuse("complete", 200, refusal, then=sent_alone.set)
        assert service.run() == 4
    assert attempts == [1, 2]


def test_a_batch_route_that_is_gone_costs_nothing(service: Service) -> None:
    """A kernel of an older release has taken its place in the middle of an execution."""
    service.agent(chain)
    service.wire.refuse("batch", 404, b"404 page not found\n", times=100)
    execution = service.client.create("served", {"length": 5})
    assert service.client.wait(execution.id, timeout=20).output == 32
    assert len(service.client.list_steps(execution.id)) == 5


def test_an_outcome_whose_answer_stays_lost_is_asked_for_while_the_handler_waits(
    service: Service,
) -> None:
    """With back-off, by itself."""
    recorded = threading.Event()

    def handler() -> bool:
        double(1)
        return recorded.wait(20)

    service.wire.lose_request("complete", times=3)
    service.wire.after("complete", recorded.set)
    service.agent(handler)
    assert service.run() is True
    assert service.wire.count("complete") >= 4


def test_an_interrupted_attempt_sends_what_it_holds_before_its_lease_is_given_back(
    service: Service,
) -> None:
    """The next attempt need not do it again."""
    bodies: list[int] = []
    attempts: list[int] = []

    @rebuno.tool
    def work() -> int:
        bodies.append(1)
        return 1

    def handler() -> Any:
        attempts.append(rebuno.execution().dispatch_attempt)
        work()
        if len(attempts) == 1:
            raise Interrupted("as after a lost answer")
        return "done"

    service.agent(handler)
    execution = service.client.create("served")
    assert service.client.wait(execution.id, timeout=20).output == "done"
    assert (bodies, attempts) == ([1], [1, 2])


# -- many at once


def test_a_stuck_request_delays_nobody_elses_outcome(service: Service) -> None:
    """Each outbox is sent in a thread of its own."""
    stuck, go_on = threading.Event(), threading.Event()

    def handler(name: str) -> str:
        value = rebuno.step(name, lambda: name)
        go_on.wait(20)
        return value

    def hang() -> None:
        stuck.set()
        go_on.wait(20)

    service.wire.before("complete", hang)
    service.agent(handler)
    first = service.client.create("served", {"name": "first"})
    assert stuck.wait(20)
    second = service.client.create("served", {"name": "second"})
    wait_until(
        lambda: [step.status for step in service.client.list_steps(second.id)] == ["succeeded"],
        "the second's outcome",
    )
    assert [step.status for step in service.client.list_steps(first.id)] == ["executing"]
    go_on.set()
    assert service.client.wait(first.id, timeout=20).output == "first"


def test_what_a_kernel_offers_is_fixed_for_an_attempt(service: Service) -> None:
    """A proxy strips the header from a later delivery while an outcome is held and a submit's
    answer is lost: nothing is proposed twice, and nothing is forgotten."""
    bodies: list[int] = []

    @rebuno.tool
    def work(number: int) -> int:
        bodies.append(number)
        return number

    def handler() -> int:
        total = 0
        for number in range(8):
            total += work(number)
            agent._service()._client.learn_extensions("")  # type: ignore[attr-defined]
        return total

    agent = service.agent(handler)
    service.wire.lose_reply("batch", times=2)
    service.wire.lose_reply("steps")
    execution = service.client.create("served")
    assert service.client.wait(execution.id, timeout=20).output == 28
    assert bodies == list(range(8))
    assert len(service.client.list_steps(execution.id)) == 8
    assert len(service.wire.of("batch")) >= 2


def test_a_route_that_is_gone_as_a_lost_request_is_repeated_proposes_nothing_twice(
    service: Service,
) -> None:
    """Whether the submit was done is unknown, so the next attempt finds out."""
    bodies: list[int] = []

    @rebuno.tool
    def work(number: int) -> int:
        bodies.append(number)
        return number

    def handler() -> int:
        return sum(work(number) for number in range(4))

    service.agent(handler)
    service.wire.lose_reply("batch")
    service.wire.refuse("batch", 404, b"404 page not found\n", times=100)
    execution = service.client.create("served")
    assert service.client.wait(execution.id, timeout=20).output == 6
    assert sorted(bodies) == [0, 1, 2, 3]
    assert len(service.client.list_steps(execution.id)) == 4


def test_an_execution_that_ends_before_an_outcome_was_taken_goes_no_further(
    service: Service,
) -> None:
    """Cancelled while it is held: the kernel takes nothing more, and no body starts."""
    second: list[int] = []
    outcomes: list[str] = []

    def handler() -> None:
        execution = rebuno.execution()
        double(1)
        service.kernel.cancel(execution.id)
        try:
            rebuno.step("second", lambda: second.append(1))
        except rebuno.errors.Signal as signal:
            outcomes.append(type(signal).__name__)
            raise

    agent = service.agent(handler)
    service.client.create("served")
    wait_until(lambda: outcomes, "the end of the attempt")
    assert agent.join(20)
    assert second == []
    assert outcomes == ["Terminated"]


@pytest.mark.parametrize("recorded", ["1", "1.0"])
def test_what_is_recorded_is_compared_to_the_letter(service: Service, recorded: str) -> None:
    """``1``, ``1.0`` and ``true`` are equal in Python, and different outcomes."""
    attempts: list[int] = []

    def handler() -> bool:
        attempts.append(rebuno.execution().dispatch_attempt)
        value = rebuno.step("asked", lambda: True)
        rebuno.step("next", lambda: None)
        return value

    with Service(Path(service.kernel.path).parent / recorded, lease_timeout=0.8) as short:
        short.agent(handler)
        body = f'{{"decision": "replay", "result": {recorded}}}'
        short.wire.refuse("complete", 200, body.encode())
        batch = f'{{"results": [{{"status": 200, "body": {body}}}]}}'
        short.wire.refuse("batch", 200, batch.encode())
        assert short.run() is True
    assert len(attempts) >= 2


@pytest.mark.slow
def test_no_request_carries_more_than_a_kernel_takes(service: Service) -> None:
    """However many bodies ended while a request was under way."""
    lanes = LARGEST_BATCH + 40
    begun = threading.Barrier(lanes, timeout=60)

    def body(lane: int) -> int:
        begun.wait()
        return lane

    def one(lane: int) -> int:
        return rebuno.step("begun", body, {"lane": lane})

    def handler() -> int:
        with rebuno.ThreadPoolExecutor(lanes) as pool:
            return sum(pool.map(one, range(lanes)))

    go_on = threading.Event()
    service.wire.before("complete", lambda: go_on.wait(0.3))
    service.agent(handler)
    assert service.run(timeout=60) == sum(range(lanes))
    assert all(len(batch) <= LARGEST_BATCH for batch in operations(service))


def test_closing_sends_what_is_held_before_the_lease_is_given_back(service: Service) -> None:
    """A handler that computes and does not see its flag: its last outcome is not done again."""
    ended, go_on = threading.Event(), threading.Event()
    bodies: list[int] = []

    def handler() -> str:
        rebuno.step("work", lambda: bodies.append(1))
        ended.set()
        go_on.wait(20)
        return "done"

    service.wire.lose_request("complete")
    agent = service.agent(handler, grace=0.0)
    execution = service.client.create("served")
    assert ended.wait(20)
    wait_until(lambda: service.wire.count("complete"), "the request that is lost")
    agent.close()
    service._agents.pop()[1].close()
    assert [step.status for step in service.client.list_steps(execution.id)] == ["succeeded"]
    go_on.set()
    service.agent(handler)
    assert service.client.wait(execution.id, timeout=20).output == "done"
    assert bodies == [1]
