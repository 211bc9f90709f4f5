"""Keys, lists, and waiting for the end."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from rebuno_sync.errors import (
    ExecutionCancelled,
    ExecutionFailed,
    NotFoundError,
    ValidationError,
)

from .deployments import AGENT, Deployment
from .moves import code_of, create, kinds, start
from .scenarios import scenario


@scenario("alone")
@scenario("idempotency keys")
def test_a_key_is_used_once(on: Deployment) -> None:
    """A second create with the key finds the first execution, whatever else it says, and adds no
    event.
    """
    first = on.operator.create(AGENT, {"n": 1}, idempotency_key="order-7")
    before = kinds(on, first.id)
    again = on.operator.create(AGENT, {"n": 2}, idempotency_key="order-7")
    assert again == first
    assert again.idempotency_key == "order-7"
    assert kinds(on, first.id) == before


@scenario("alone")
@scenario("idempotency keys")
def test_a_key_finds_what_has_ended(on: Deployment) -> None:
    """A key stays used after the end of its execution."""
    first = on.operator.create(AGENT, idempotency_key="k")
    lease = on.lease(first.id)
    assert lease is not None
    on.agent.complete(lease, '"done"')
    again = on.operator.create(AGENT, idempotency_key="k")
    assert (again.id, again.status, again.output) == (first.id, "completed", "done")


@scenario("alone")
@scenario("idempotency keys")
def test_keys_belong_to_an_agent(on: Deployment) -> None:
    """The same key of another agent is another execution; no key is never the same."""
    on.register("other")
    mine = on.operator.create(AGENT, idempotency_key="k")
    assert on.operator.create("other", idempotency_key="k").id != mine.id
    assert create(on).id != create(on).id


@scenario("idempotency keys")
def test_a_key_is_looked_up_before_relatives(on: Deployment) -> None:
    """What exists is found, though the parent that is named now does not; but a text that can be
    no session is refused before (protocol.md 9.1).
    """
    key, nobody = f"key {uuid.uuid4()}", str(uuid.uuid4())
    first = on.operator.create(AGENT, idempotency_key=key)
    again = on.operator.create(AGENT, idempotency_key=key, parent_execution_id=nobody)
    assert again.id == first.id
    refused = code_of(lambda: on.operator.create(AGENT, idempotency_key=key, session=" "))
    assert refused == "validation_error"
    unknown = code_of(lambda: on.operator.create(AGENT, parent_execution_id=nobody))
    assert unknown == "not_found"


@scenario("alone")
@scenario("idempotency keys")
def test_a_key_does_not_hide_an_unknown_agent(on: Deployment) -> None:
    """The agent is looked for before the key."""
    assert code_of(lambda: on.operator.create("nobody", idempotency_key="k")) == "not_found"


@scenario("alone")
@scenario("idempotency keys")
@pytest.mark.parametrize("key", [" \t", "a\0b", "x" * 257, "é" * 129])
def test_a_bad_key_is_refused(on: Deployment, key: str) -> None:
    """A key has 1 to 256 bytes of UTF-8, is not blank and has no NUL."""
    with pytest.raises(ValidationError, match="idempotency_key"):
        on.operator.create(AGENT, idempotency_key=key)
    assert on.operator.list().executions == []


@scenario("idempotency keys")
@pytest.mark.parametrize("name", ["idempotency_key", "session"])
def test_an_empty_key_is_no_missing_one(on: Deployment, name: str) -> None:
    """A key that came out empty is refused, over HTTP too, instead of beginning an execution anew
    each time.
    """
    with pytest.raises(ValidationError, match=name):
        on.operator.create(AGENT, **{name: ""})  # type: ignore[arg-type]


@scenario("alone")
@scenario("idempotency keys")
@pytest.mark.parametrize("key", ["x" * 256, "é" * 128, " a ", "%_'\"", "\U0001f511"])
def test_any_other_text_is_a_key(on: Deployment, key: str) -> None:
    """Keys are compared as they are."""
    first = on.operator.create(AGENT, idempotency_key=key)
    assert on.operator.create(AGENT, idempotency_key=key).id == first.id
    assert on.operator.get(first.id).idempotency_key == key


@scenario("alone")
@scenario("idempotency keys")
def test_threads_that_race_for_a_key_get_one_execution(on: Deployment) -> None:
    """Eight creates at once with the same key, twenty times: one execution each time, which all
    get.
    """
    with ThreadPoolExecutor(8) as pool:
        for number in range(20):
            gate = threading.Barrier(8)

            def make(number: int = number, gate: threading.Barrier = gate) -> str:
                gate.wait()
                return on.operator.create(AGENT, idempotency_key=f"race-{number}").id

            ids = {future.result() for future in [pool.submit(make) for _ in range(8)]}
            assert len(ids) == 1
    assert len(on.operator.list().executions) == 20


@scenario("alone")
def test_executions_are_listed_newest_first(on: Deployment) -> None:
    """Pages go from the newest to the oldest; a cursor is there only when more follow."""
    ids = [create(on).id for _ in range(7)][::-1]
    page = on.operator.list(limit=3)
    assert [e.id for e in page.executions] == ids[:3]
    assert page.next_cursor == ids[2]
    page = on.operator.list(limit=3, cursor=page.next_cursor)
    assert [e.id for e in page.executions] == ids[3:6]
    page = on.operator.list(limit=3, cursor=page.next_cursor or "")
    assert ([e.id for e in page.executions], page.next_cursor) == (ids[6:], None)
    assert on.operator.list(limit=7).next_cursor is None


@scenario("alone")
def test_a_page_of_long_inputs_is_shorter(on: Deployment) -> None:
    """No answer is put together of hundreds of megabytes; the cursor leads to the rest."""
    ids = [on.operator.create(AGENT, "x" * 6_000_000).id for _ in range(4)][::-1]
    page = on.operator.list()
    assert [e.id for e in page.executions] == ids[:3]
    page = on.operator.list(cursor=page.next_cursor or "")
    assert ([e.id for e in page.executions], page.next_cursor) == (ids[3:], None)


@scenario("alone")
def test_a_page_has_limits(on: Deployment) -> None:
    """50 by default and for a limit that is none, 200 at most."""
    for _ in range(205):
        create(on)
    assert len(on.operator.list().executions) == 50
    assert len(on.operator.list(limit=0).executions) == 50
    assert len(on.operator.list(limit=-1).executions) == 50
    page = on.operator.list(limit=5000)
    assert len(page.executions) == 200
    assert page.next_cursor == page.executions[-1].id


@scenario("alone")
def test_a_list_can_be_narrowed(on: Deployment) -> None:
    """By agent, by status, and by both; an unknown status or agent is an empty page."""
    on.register("other")
    done, live = start(on), start(on)
    on.agent.complete(done, "null")
    other = on.operator.create("other")

    def ids(**narrow: str) -> list[str]:
        return [e.id for e in on.operator.list(**narrow).executions]

    assert ids() == [other.id, live.execution_id, done.execution_id]
    assert ids(agent_id="other") == [other.id]
    assert ids(status="completed") == [done.execution_id]
    assert ids(status="running") == [other.id, live.execution_id]
    assert ids(agent_id=AGENT, status="running") == [live.execution_id]
    assert ids(status="finished") == ids(agent_id="nobody") == []


def test_a_cursor_is_an_id(on: Deployment) -> None:
    """Any other text is refused."""
    create(on)
    with pytest.raises(ValidationError, match="cursor"):
        on.operator.list(cursor="the next page, please")


@scenario("unknown is not found")
def test_what_does_not_exist_is_not_found(on: Deployment) -> None:
    """Every reading of an unknown execution or step says so, and names it."""
    nothing = str(uuid.uuid4())
    lease = start(on)
    for read in (
        lambda: on.operator.get(nothing),
        lambda: on.operator.events(nothing),
        lambda: on.operator.list_steps(nothing),
        lambda: on.operator.get_step(nothing, "0" * 64),
        lambda: on.operator.cancel(nothing),
        lambda: on.operator.wait(nothing, 5),
        lambda: on.agent.get_execution(nothing),
        lambda: on.agent.list_steps(nothing),
    ):
        with pytest.raises(NotFoundError, match=nothing):
            read()
    with pytest.raises(NotFoundError, match="f" * 64):
        on.operator.get_step(lease.execution_id, "f" * 64)
    with pytest.raises(NotFoundError, match="f" * 64):
        on.agent.complete_step(lease, "f" * 64, "1")


def test_waiting_returns_what_has_completed(on: Deployment) -> None:
    """An execution that has ended already is returned at once."""
    lease = start(on)
    on.agent.complete(lease, '"done"')
    assert on.operator.wait(lease.execution_id, timeout=0).output == "done"


def test_waiting_ends_with_the_execution(on: Deployment) -> None:
    """Everybody who waits is woken by the end."""
    lease = start(on)
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(on.operator.wait, lease.execution_id, 20.0) for _ in range(3)]
        on.agent.complete(lease, '"done"')
        assert [future.result().output for future in waiting] == ["done"] * 3


def test_waiting_raises_a_failure(on: Deployment) -> None:
    """A failed execution raises `ExecutionFailed`, a cancelled one `ExecutionCancelled`, with id
    and reason.
    """
    failed, cancelled = start(on), start(on)
    on.agent.fail(failed, "agent_error: ValueError: no")
    on.operator.cancel(cancelled.execution_id)
    with pytest.raises(ExecutionFailed, match="ValueError: no") as caught:
        on.operator.wait(failed.execution_id)
    assert caught.value.execution_id == failed.execution_id
    assert caught.value.reason == "agent_error: ValueError: no"
    with pytest.raises(ExecutionCancelled) as ended:
        on.operator.wait(cancelled.execution_id)
    assert (ended.value.execution_id, ended.value.reason) == (
        cancelled.execution_id,
        "client_cancelled",
    )


def test_waiting_has_a_limit(on: Deployment) -> None:
    """When the time is over `TimeoutError` says so and the execution goes on."""
    lease = start(on)
    with pytest.raises(TimeoutError, match="still running"):
        on.operator.wait(lease.execution_id, timeout=0)
    on.agent.complete(lease, "null")
