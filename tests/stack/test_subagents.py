"""``subagent``, ``previous`` and ``Result``, as handlers see them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.attempts import attempt, claimed, created
from support.faulty_port import FaultyPort
from support.services import TOKEN, Service
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync import ExecutionFailed, ToolError
from rebuno_sync.kernel import Kernel

Hosting = Callable[..., rebuno.Agent]


@pytest.fixture
def host(kernel: Kernel) -> Iterator[Hosting]:
    """Hosts a handler as an agent of that name on the kernel of this process."""
    agents: list[rebuno.Agent] = []

    def hosted(name: str, handler: Callable[..., Any], **options: Any) -> rebuno.Agent:
        agent = rebuno.Agent(name, kernel=kernel, grace=0, **options)
        agent.bind(handler)
        agents.append(agent)
        return agent

    yield hosted
    for agent in agents:
        agent.close()


@rebuno.tool
def ask(question: object = None) -> Any:
    return rebuno.subagent("expert", question)


def answers(question: object) -> object:
    return {"asked": question}


# -- one subagent


def test_a_parent_of_run_asks_an_agent_of_its_kernel(kernel: Kernel, host: Hosting) -> None:
    """The output is the tool's result, and stays it: asked again, nothing runs."""
    ran: list[object] = []

    def expert(question: str) -> object:
        ran.append(question)
        return answers(question)

    host("expert", expert)

    def parent() -> object:
        return ask({"question": "why"})

    assert rebuno.run(parent, key="k", kernel=kernel) == {"asked": "why"}
    assert rebuno.run(parent, key="k", kernel=kernel) == {"asked": "why"}
    assert ran == ["why"]


@pytest.mark.parametrize("where", ["in process", "over HTTP"])
def test_c21_five_levels_complete_on_a_pool_of_one_thread(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for a subagent holds no thread."""

    @rebuno.tool
    def descend(level: int) -> int:
        below: int = rebuno.subagent("nested", {"level": level})
        return below

    def nested(level: int) -> int:
        return 1 + descend(level - 1) if level else 1

    monkeypatch.setenv("REBUNO_API_KEY", TOKEN)
    with Service(tmp_path) as service:
        if where == "over HTTP":
            service.agent(nested, "nested", workers=1)
        else:
            agent = rebuno.Agent("nested", kernel=service.kernel, workers=1)
            agent.bind(nested)
        execution = service.kernel.create("nested", {"level": 5})
        assert service.kernel.wait(execution.id, timeout=20).output == 6
        if where == "in process":
            agent.close()


def test_a_failed_subagent_fails_the_tool(kernel: Kernel, host: Hosting) -> None:
    """With the reason, live as on a replay, and whatever its body makes of the error."""
    seen: list[tuple[str, str | None]] = []

    def expert() -> None:
        raise ValueError("no idea")

    @rebuno.tool
    def forgiving() -> str:
        try:
            rebuno.subagent("expert")
        except ToolError:
            return "never mind"
        return "fine"

    def parent() -> None:
        try:
            forgiving()
        except ToolError as error:
            seen.append((error.reason, error.tool_id))
        if len(seen) == 1:
            raise KeyboardInterrupt

    host("expert", expert)
    with pytest.raises(KeyboardInterrupt):
        rebuno.run(parent, key="k", kernel=kernel)
    rebuno.run(parent, key="k", kernel=kernel)
    assert seen == [("subagent_failed", "forgiving")] * 2


def test_what_the_body_does_afterwards_does_not_count(kernel: Kernel, host: Hosting) -> None:
    """The result is the subagent's: an attempt that finds it recorded has no body to run."""
    host("expert", answers)

    @rebuno.tool
    def decorated() -> str:
        return f"*{rebuno.subagent('expert', {'question': 1})}*"

    assert rebuno.run(lambda: decorated(), agent="a", kernel=kernel) == {"asked": 1}


def test_a_subagent_belongs_in_a_tool(kernel: Kernel, host: Hosting) -> None:
    """In the handler it would be no effect; two would be one step."""
    host("expert", answers)

    @rebuno.tool
    def twice() -> None:
        rebuno.subagent("expert", {"question": 1})
        rebuno.subagent("expert", {"question": 2})

    with pytest.raises(ExecutionFailed, match="outside a tool"):
        rebuno.run(lambda: rebuno.subagent("expert"), agent="a", kernel=kernel)
    # The first one's answer is the result, whatever the body does then.
    assert rebuno.run(lambda: twice(), agent="a", kernel=kernel) == {"asked": 1}


def test_an_agent_that_nobody_registered_fails_the_tool(kernel: Kernel) -> None:
    """At once, by its name."""

    @rebuno.tool
    def lost() -> None:
        rebuno.subagent("nobody")

    with pytest.raises(ExecutionFailed, match=r"'nobody' is not registered"):
        rebuno.run(lambda: lost(), agent="a", kernel=kernel)


def test_a_client_may_create_it(kernel: Kernel, host: Hosting) -> None:
    """Anything with the ``create`` of ``Client`` and ``Kernel``."""
    host("expert", answers)

    @rebuno.tool
    def through() -> Any:
        return rebuno.subagent("expert", {"question": 2}, session="theirs", client=kernel)

    assert rebuno.run(lambda: through(), agent="a", kernel=kernel) == {"asked": 2}
    [child] = kernel.list(session="theirs").executions
    assert child.spawned_by is not None


# -- several


def test_subagents_in_threads_are_waited_for_together(kernel: Kernel, host: Hosting) -> None:
    """The parent is parked once all of them are asked, and each call gets its own answer."""
    host("expert", answers)
    attempts: list[int] = []

    def parent() -> list[Any]:
        attempts.append(1)
        return rebuno.parallel([(ask, {"question": n}) for n in range(4)])

    output = rebuno.run(parent, kernel=kernel)
    assert output == [{"asked": n} for n in range(4)]
    assert len(attempts) <= 3


def test_a_parent_that_does_something_else_is_not_parked(kernel: Kernel, host: Hosting) -> None:
    """What runs beside the wait is finished; nothing of it is done twice."""
    asked, worked = threading.Event(), []

    def expert() -> str:
        asked.set()
        return "an answer"

    @rebuno.tool
    def work() -> str:
        assert asked.wait(20)
        worked.append(1)
        return "done"

    host("expert", expert)
    both = rebuno.run(lambda: rebuno.parallel([(ask, None), work]), agent="a", kernel=kernel)
    assert both == ["an answer", "done"]
    assert worked == [1]


def test_a_body_that_must_not_run_twice_waits_in_its_thread(kernel: Kernel, host: Hosting) -> None:
    """Around the waiting step: parked, it would have to begin again."""
    began: list[int] = []
    host("expert", lambda: (threading.Event().wait(0.3), "an answer")[1])

    @rebuno.tool(idempotency="at_most_once")
    def outer() -> Any:
        began.append(1)
        return ask()

    assert rebuno.run(lambda: outer(), agent="a", kernel=kernel) == "an answer"
    assert began == [1]
    execution = kernel.list(agent_id="a").executions[0]
    assert "execution.blocked" not in [it.type for it in kernel.events(execution.id)]


def test_a_step_that_must_not_run_twice_may_be_a_subagent(kernel: Kernel, host: Hosting) -> None:
    """The kernel settles it, so nothing is in doubt."""
    host("expert", lambda: (threading.Event().wait(0.1), "an answer")[1])

    @rebuno.tool(idempotency="at_most_once")
    def once() -> Any:
        return rebuno.subagent("expert")

    assert rebuno.run(lambda: once(), agent="a", kernel=kernel) == "an answer"


# -- what goes wrong


@pytest.mark.parametrize("lost", ["spawn", "suspend", "get_step"])
def test_a_lost_answer_makes_no_second_subagent(kernel: Kernel, host: Hosting, lost: str) -> None:
    """What was asked for is asked again, and was done once."""
    execution_id = created(kernel)
    kernel.register_agent("expert")
    port = FaultyPort(kernel.agent)
    port.lose_reply(lost)

    def parent() -> object:
        return ask({"question": 1})

    first = attempt(kernel, execution_id, parent, port=port)
    assert first.status in ("blocked", "lease_superseded")
    assert len(kernel.list(agent_id="expert").executions) == 1
    host("expert", answers)
    wait_until(lambda: kernel.get(execution_id).status == "running", "the answer")
    assert attempt(kernel, execution_id, parent).output == {"asked": 1}


def test_a_subagent_that_ends_as_a_sleep_beside_it_is_parked_is_heard(kernel: Kernel) -> None:
    """What comes after it does not wait for the sleep."""
    execution_id = created(kernel)
    kernel.register_agent("expert")
    port = FaultyPort(kernel.agent)
    told: list[object] = []

    def answer() -> None:
        [child] = kernel.list(agent_id="expert").executions
        kernel.agent.complete(claimed(kernel, child.id).key, "7")

    def asked() -> None:
        value = ask()
        rebuno.step("tell", lambda: told.append(value))

    def parent() -> None:
        rebuno.parallel([asked, lambda: rebuno.sleep(3600)])

    port.before("suspend", answer)
    assert attempt(kernel, execution_id, parent, port=port).status == "blocked"
    assert told == [7]


def test_a_sleep_beside_a_subagent_goes_on_where_nobody_wakes_it(kernel: Kernel) -> None:
    """Its attempt is parked when it is over, not before."""
    execution_id = created(kernel)
    kernel.register_agent("expert")
    port = FaultyPort(kernel.agent)
    port.parks = False
    told: list[str] = []

    def slept() -> None:
        rebuno.sleep(0.3)
        rebuno.step("tell", lambda: told.append("awake"))

    def parent() -> None:
        rebuno.parallel([ask, slept])

    assert attempt(kernel, execution_id, parent, port=port).status == "blocked"
    assert told == ["awake"]


def test_a_cancelled_parent_takes_its_subagent_along(kernel: Kernel, host: Hosting) -> None:
    """Its handler has ended within a second."""
    began, ended = threading.Event(), threading.Event()

    def expert() -> None:
        began.set()
        try:
            rebuno.execution().wait(60)
        finally:
            ended.set()

    host("expert", expert)
    host("parent", lambda: ask())
    parent = kernel.create("parent")
    assert began.wait(20)
    started = time.monotonic()
    kernel.cancel(parent.id)
    assert ended.wait(20)
    assert time.monotonic() - started < 1
    [child] = kernel.list(agent_id="expert").executions
    assert (child.status, child.failure_reason) == ("cancelled", "parent_agent_terminal")


def test_a_parent_that_was_killed_finds_its_subagent_again(kernel: Kernel, host: Hosting) -> None:
    """The step stays open, and stands for the same execution."""
    execution_id = created(kernel)
    kernel.register_agent("expert")
    port = FaultyPort(kernel.agent)

    def killed() -> None:
        raise KeyboardInterrupt

    def parent() -> object:
        return ask({"question": 1})

    port.before("suspend", killed)
    with pytest.raises(KeyboardInterrupt):
        attempt(kernel, execution_id, parent, port=port)
    host("expert", answers)
    wait_until(
        lambda: kernel.list(agent_id="expert").executions[0].status == "completed", "the answer"
    )
    assert attempt(kernel, execution_id, parent).output == {"asked": 1}
    assert len(kernel.list(agent_id="expert").executions) == 1


def test_waiting_in_vain_says_what_for(kernel: Kernel) -> None:
    """A subagent that nobody runs, and a place in a session."""
    kernel.register_agent("expert")
    with pytest.raises(TimeoutError, match="waits for executions that it has spawned"):
        rebuno.run(lambda: ask(), agent="a", kernel=kernel, timeout=0.2)
    waiting = [kernel.create("expert", session="s").id for _ in range(2)]
    with pytest.raises(TimeoutError, match="session 's' runs one at a time"):
        kernel.wait(waiting[1], timeout=0)


# -- previous


def test_a_handler_goes_on_from_the_state_before_it(kernel: Kernel, host: Hosting) -> None:
    """What ``Result`` left; callers see the output alone."""

    def chat(words: str) -> rebuno.Result:
        said = [*(rebuno.previous() or []), words]
        return rebuno.Result(output=len(said), state=said)

    host("chat", chat)
    turns = [kernel.create("chat", {"words": word}, session="s") for word in ("a", "b", "c")]
    assert [kernel.wait(it.id, timeout=20).output for it in turns] == [1, 2, 3]
    assert kernel.agent.previous(turns[2].id) == ["a", "b"]


def test_without_a_state_the_output_is_left(kernel: Kernel, host: Hosting) -> None:
    """As is said of ``Result``."""
    host("count", lambda: (rebuno.previous() or 0) + 1)
    turns = [kernel.create("count", session="s") for _ in range(3)]
    assert [kernel.wait(it.id, timeout=20).output for it in turns] == [1, 2, 3]


@pytest.mark.parametrize(
    ("result", "named"),
    [(rebuno.Result(1, object()), "state"), (rebuno.Result(object()), "output")],
)
def test_a_result_that_is_no_json_fails_the_execution(
    kernel: Kernel, result: rebuno.Result, named: str
) -> None:
    """State or output, by its name."""
    with pytest.raises(ExecutionFailed, match=f"output_invalid: {named}"):
        rebuno.run(lambda: result, agent="a", kernel=kernel)


def test_run_returns_the_output_of_a_result(kernel: Kernel) -> None:
    """With the type that the handler's annotation does not tell: plain JSON."""
    assert rebuno.run(lambda: rebuno.Result({"n": 1}, "left"), agent="a", kernel=kernel) == {"n": 1}
    with pytest.raises(rebuno.NoActiveExecution):
        rebuno.previous()
