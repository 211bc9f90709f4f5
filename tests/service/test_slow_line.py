"""Outcomes on a slow line to a kernel without ``batch``: the next submit travels beside them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.services import Service
from support.waiting import wait_until

import rebuno_sync as rebuno

SECONDS = 10.0
"""That a request waits for another at most, when it does not come."""

ASK = """
default_action: allow
rules:
  - id: ask-first
    when: {target: ask}
    then: {decision: require_approval}
"""

bodies: Counter[str] = Counter()


@rebuno.tool
def double(number: int) -> int:
    bodies["double"] += 1
    return 2 * number


@rebuno.tool(idempotency="at_most_once")
def charge(cents: int) -> int:
    return cents


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Service]:
    """A kernel without extensions, 10 ms away."""
    bodies.clear()
    with Service(tmp_path, extensions=False) as service:
        service.wire.delay = 0.01
        yield service


def proposed(service: Service) -> int:
    """How many effects have been proposed."""
    return sum(request.method == "POST" for request in service.wire.of("steps"))


def until_proposed(service: Service, count: int) -> None:
    wait_until(lambda: proposed(service) >= count, f"proposal {count}", SECONDS)


def test_the_next_submit_travels_beside_the_outcome(slow: Service) -> None:
    """The handler does not wait for the answer to an outcome before it proposes what is next."""
    slow.agent(lambda: double(double(1)))
    slow.wire.before("complete", lambda: until_proposed(slow, 2))
    assert slow.run() == 4


def test_no_body_starts_before_the_outcome_before_it_is_acknowledged(slow: Service) -> None:
    """The kernel's answer to a submit is not enough: what was done before must be recorded."""
    seen: list[int] = []

    @rebuno.tool
    def look(number: int) -> int:
        steps = slow.kernel.list_steps(rebuno.execution().id)
        seen.append(sum(step.status == "succeeded" for step in steps))
        return number

    def handler() -> int:
        return sum(look(number) for number in range(3))

    slow.agent(handler)
    slow.wire.before("complete", lambda: until_proposed(slow, 2))
    assert slow.run() == 3
    assert seen == [0, 1, 2]


def test_nothing_travels_beside_what_must_not_happen_twice(slow: Service) -> None:
    """An ``at_most_once`` effect is proposed when everything before it is recorded, and nothing is
    proposed before its own outcome is."""
    before: list[int] = []

    def handler() -> int:
        return double(charge(double(1)))

    slow.agent(handler)
    for _ in range(2):
        slow.wire.after("complete", lambda: before.append(proposed(slow)))
    assert slow.run() == 4
    assert before == [1, 2]


def test_the_end_waits_for_every_outcome(slow: Service) -> None:
    """An answer that is lost is asked for again; until it is there nothing is completed."""
    slow.agent(lambda: double(1))
    slow.wire.lose_reply("complete")
    slow.wire.lose_request("complete")
    execution = slow.client.create("served")
    assert slow.client.wait(execution.id, timeout=20).output == 2
    [step] = slow.client.list_steps(execution.id)
    assert step.status == "succeeded"
    assert bodies == {"double": 1}


def test_threads_send_their_outcomes_side_by_side(slow: Service) -> None:
    """Where others are at work an outcome is not held: they would all wait for its answer."""
    guard = threading.Lock()
    under_way: list[int] = [0]
    most: list[int] = [0]

    def arrives() -> None:
        with guard:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        time.sleep(0.02)
        with guard:
            under_way[0] -= 1

    def handler() -> int:
        def lane(number: int) -> int:
            return sum(double(10 * number + turn) for turn in range(4))

        with rebuno.ThreadPoolExecutor(6) as pool:
            return sum(pool.map(lane, range(6)))

    slow.agent(handler)
    for _ in range(24):
        slow.wire.before("complete", arrives)
    assert slow.run() == sum(2 * (10 * number + turn) for number in range(6) for turn in range(4))
    assert most[0] > 1


def test_an_outcome_that_is_refused_for_good_ends_the_attempt(tmp_path: Path) -> None:
    """The handler has gone on with a result that this kernel cannot store: the attempt stops, and
    the next one is told."""
    second: list[int] = []

    def handler() -> str:
        try:
            double(1)
        except rebuno.ToolError as error:
            return error.message
        rebuno.step("second", lambda: second.append(1))
        return "stored"

    bodies.clear()
    with Service(tmp_path, extensions=False, lease_timeout=2.0) as service:
        service.wire.delay = 0.01
        service.agent(handler)
        service.wire.refuse("complete", 500, b'{"code":"internal_error","message":"no"}', times=3)
        assert "not storable by this kernel" in service.run()
    assert bodies == {"double": 1}
    assert second == [], "nothing followed an outcome that is not recorded"


def test_an_outcome_is_recorded_though_the_next_effect_waits_for_a_person(slow: Service) -> None:
    """The lease ends as the next effect blocks; what was done before it counts all the same."""

    @rebuno.tool
    def ask(number: int) -> int:
        return number

    slow.agent(lambda: ask(double(1)))
    slow.client.set_policy("served", ASK)

    def until_asked() -> None:
        wait_until(slow.kernel.list_approvals, "a question", SECONDS)

    slow.wire.before("complete", until_asked)
    execution = slow.client.create("served")
    [approval] = wait_until(slow.client.list_approvals, "a question", SECONDS)
    wait_until(
        lambda: slow.client.list_steps(execution.id, status="terminal"), "the outcome", SECONDS
    )
    slow.client.grant_approval(approval.id)
    assert slow.client.wait(execution.id, timeout=20).output == 2
    assert bodies == {"double": 1}
