"""Executions of agents over HTTP that wait for subagents, or sleep."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support.services import TOKEN, Service
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync import ToolError


@rebuno.tool
def ask(question: object = None) -> Any:
    return rebuno.subagent("expert", {"question": question})


def expert(question: object = None) -> object:
    return {"asked": question}


def kinds(service: Service, execution_id: str) -> list[str]:
    return [event.type for event in service.client.events(execution_id, limit=1000)]


@pytest.mark.parametrize("extensions", [True, False])
def test_a_service_has_subagents(
    tmp_path: Path, extensions: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Suspending is no extension; results that are held back go before it."""
    monkeypatch.setenv("REBUNO_API_KEY", TOKEN)
    attempts: list[int] = []

    def parent() -> list[Any]:
        attempts.append(1)
        before = [rebuno.step("before", lambda n=n: n, {"n": n}) for n in range(3)]
        return [*before, *rebuno.parallel([(ask, n) for n in range(3)])]

    with Service(tmp_path, extensions=extensions) as service:
        service.agent(expert, "expert")
        service.agent(parent)
        execution = service.client.create("served")
        output = service.client.wait(execution.id, timeout=20).output
        assert output == [0, 1, 2, *({"asked": n} for n in range(3))]
        assert "execution.blocked" in kinds(service, execution.id)
        steps = service.client.list_steps(execution.id)
        assert len([step for step in steps if step.target == "before"]) == 3
        assert len(service.client.list(agent_id="expert").executions) == 3


def test_a_client_of_ones_own_creates_the_subagent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the environment has no key."""
    monkeypatch.delenv("REBUNO_API_KEY", raising=False)
    with Service(tmp_path) as service:

        @rebuno.tool
        def through() -> Any:
            return rebuno.subagent("expert", client=service.client)

        @rebuno.tool
        def without() -> Any:
            return rebuno.subagent("expert")

        def parent() -> Any:
            try:
                without()
            except ToolError as error:
                return [through(), error.error_type]

        service.agent(expert, "expert")
        service.agent(parent)
        answer, refusal = service.run()
        assert answer == {"asked": None}
        assert refusal.endswith("UnauthorizedError")


def test_a_sleep_over_http_is_parked(tmp_path: Path) -> None:
    """It holds no worker: another execution runs in the only one."""

    def handler(seconds: float = 0) -> str:
        rebuno.step("before", lambda: None)
        rebuno.sleep(seconds)
        return "awake"

    with Service(tmp_path) as service:
        service.agent(handler, workers=1)
        sleeping = service.client.create("served", {"seconds": 2})
        wait_until(lambda: service.client.get(sleeping.id).status == "blocked", "the park")
        assert service.run({"seconds": 0}) == "awake"
        assert service.client.wait(sleeping.id, timeout=20).output == "awake"
        assert kinds(service, sleeping.id).count("execution.blocked") == 1


def test_without_the_extension_a_sleep_is_waited_for(tmp_path: Path) -> None:
    """Under the lease."""
    with Service(tmp_path, extensions=False) as service:
        service.agent(lambda: rebuno.sleep(1.2))
        execution = service.client.create("served")
        service.client.wait(execution.id, timeout=20)
        assert "execution.blocked" not in kinds(service, execution.id)


def test_a_lost_answer_to_a_suspend_costs_nothing(tmp_path: Path) -> None:
    """The execution is parked all the same, and wakes."""
    slept: list[int] = []

    def handler() -> None:
        rebuno.sleep(1.5)
        slept.append(1)

    with Service(tmp_path) as service:
        service.wire.lose_reply("suspend")
        service.agent(handler)
        execution = service.client.create("served")
        service.client.wait(execution.id, timeout=20)
        assert slept == [1]
        assert kinds(service, execution.id).count("execution.blocked") == 1


def test_c7_a_cancel_ends_a_parent_and_its_subagent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a second, over HTTP, though only the parent was cancelled."""
    monkeypatch.setenv("REBUNO_API_KEY", TOKEN)
    began, ended = threading.Event(), threading.Event()

    def slow(question: object = None) -> None:
        began.set()
        try:
            rebuno.execution().wait(60)
        finally:
            ended.set()

    with Service(tmp_path) as service:
        service.agent(slow, "expert")
        service.agent(lambda: ask())
        execution = service.client.create("served")
        assert began.wait(20)
        started = time.monotonic()
        service.client.cancel(execution.id)
        assert ended.wait(20)
        assert time.monotonic() - started < 1


def test_a_service_goes_on_from_the_state_before(tmp_path: Path) -> None:
    """Over HTTP: a session, ``previous`` and ``Result``."""

    def chat(words: str) -> rebuno.Result:
        said = [*(rebuno.previous() or []), words]
        return rebuno.Result(len(said), said)

    with Service(tmp_path) as service:
        service.agent(chat)
        turns = [
            service.client.create("served", {"words": word}, session="s") for word in ("a", "b")
        ]
        outputs = [service.client.wait(turn.id, timeout=20).output for turn in turns]
        assert outputs == [1, 2]
        [second, first] = service.client.list(session="s").executions
        assert second.parent_execution_id == first.id
