"""Log records tell which execution they belong to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import flask
import pytest
from support.replays import live_and_replayed
from support.services import Service

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel
from rebuno_sync.logs import ExecutionFilter

log = logging.getLogger("app.of.the.test")
tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


class Kept(logging.Handler):
    def __init__(self, **options: bool) -> None:
        super().__init__()
        self.addFilter(ExecutionFilter(**options))
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def of(self, message: str) -> list[Any]:
        return [it for it in self.records if it.getMessage() == message]


@pytest.fixture
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    handler = Kept(**getattr(request, "param", {}))
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    root.setLevel(before)


@rebuno.tool
def search(query: str) -> str:
    log.info("searching")
    return query.upper()


def test_c31_records_carry_the_execution_the_step_and_the_attempt(
    kernel: Kernel, kept: Kept
) -> None:
    """Those of the handler, of a body and of a pool's thread; a format string may use them."""

    def handler() -> str:
        log.info("begun")
        with rebuno.ThreadPoolExecutor(1) as pool:
            return pool.submit(search, "a").result()

    rebuno.run(handler, kernel=kernel)
    [execution] = kernel.list().executions
    [step] = kernel.list_steps(execution.id)
    [begun], [searching] = kept.of("begun"), kept.of("searching")
    assert (begun.execution_id, begun.step_id, begun.dispatch_attempt) == (execution.id, "", 1)
    assert (searching.execution_id, searching.step_id) == (execution.id, step.step_id)
    assert not begun.replaying
    formatter = logging.Formatter("%(execution_id)s %(step_id)s %(replaying)s %(message)s")
    assert formatter.format(searching) == f"{execution.id} {step.step_id} False searching"


def test_a_record_outside_an_execution_has_the_fields_too(kept: Kept) -> None:
    log.info("outside")
    [record] = kept.of("outside")
    found = (record.execution_id, record.step_id, record.dispatch_attempt, record.replaying)
    assert found == ("", "", 0, False)


def handler_that_dies_once(died: list[int]) -> Any:
    def handler() -> None:
        log.info("before")
        search("a")
        log.info("between")
        search("b")
        log.info("after")
        if not died:
            died.append(1)
            raise KeyboardInterrupt
        search("c")
        log.info("new")

    return handler


@pytest.mark.parametrize(
    ("kept", "times"), [({}, 2), ({"drop_replayed": True}, 1)], indirect=["kept"], ids=str
)
def test_records_of_a_replay_are_marked_or_left_out(kernel: Kernel, kept: Kept, times: int) -> None:
    """While recorded steps are unmet; what comes after the last of them is new."""
    handler = handler_that_dies_once([])
    with pytest.raises(KeyboardInterrupt):
        rebuno.run(handler, key="k", kernel=kernel)
    rebuno.run(handler, key="k", kernel=kernel)
    assert [it.replaying for it in kept.of("before")] == [False, True][:times]
    assert [it.replaying for it in kept.of("between")] == [False, True][:times]
    assert [it.replaying for it in kept.of("after")] == [False, False]
    assert [it.dispatch_attempt for it in kept.of("after")] == [1, 2]
    assert [it.replaying for it in kept.of("new")] == [False]


def test_a_record_asks_no_kernel(tmp_path: Path, kept: Kept) -> None:
    """Over HTTP each attempt asks once, before the handler; the records of asking end in nothing
    endless."""
    attempts = []

    def handler() -> str:
        for number in range(50):
            log.info("line %s", number)
        attempts.append(rebuno.execution().replaying)
        answer = search("a")
        if len(attempts) == 1:
            raise rebuno.Interrupted("on purpose")
        return answer

    with Service(tmp_path) as service:
        service.agent(handler)
        assert service.run() == "A"
        assert sum(it.method == "GET" for it in service.wire.of("steps")) == 2
    assert attempts == [False, True]


def test_a_field_of_the_programs_own_is_left_alone(kernel: Kernel, kept: Kept) -> None:
    rebuno.run(lambda: log.info("mine", extra={"step_id": "my step"}), agent="a", kernel=kernel)
    [record] = kept.of("mine")
    assert record.step_id == "my step"
    assert record.execution_id


def test_c31_what_a_flask_view_set_is_seen_in_the_bodies_of_its_run(
    kernel: Kernel, kept: Kept
) -> None:
    """A tenant's ContextVar and Flask's own proxies, in the handler's thread and in its pool's."""
    app = flask.Flask("of-the-test")

    @rebuno.tool
    def whose() -> str:
        log.info("in the body")
        return f"{tenant.get()} {flask.request.path}"

    def handler() -> list[str]:
        with rebuno.ThreadPoolExecutor(2) as pool:
            return [whose(), pool.submit(whose).result()]

    @app.get("/<name>")
    def view(name: str) -> list[str]:
        tenant.set(name)
        return rebuno.run(handler, key=name, kernel=kernel)

    def ask(name: str) -> None:
        answers[name] = app.test_client().get(f"/{name}").json

    answers: dict[str, Any] = {}
    names = ["a", "b", "c", "d"]
    threads = [threading.Thread(target=ask, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == {name: [f"{name} /{name}"] * 2 for name in names}
    for record in kept.of("in the body"):
        assert record.execution_id
        assert record.step_id


def test_the_filter_installs_nothing() -> None:
    """No handler, no level: a program configures its logging by itself."""
    loggers = [logging.getLogger(), logging.getLogger("rebuno_sync")]
    before = [(it.handlers[:], it.level, it.filters[:]) for it in loggers]
    ExecutionFilter(drop_replayed=True)
    assert [(it.handlers[:], it.level, it.filters[:]) for it in loggers] == before


def test_a_replay_with_a_filter_gives_what_it_gives_without(kernel: Kernel, kept: Kept) -> None:
    assert live_and_replayed(kernel, lambda: search("x")) == ("X", "X")
