"""``Agent``: a handler as a service of a kernel that is reached over HTTP."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from support.attempts import background
from support.children import ChildScript
from support.services import SECRET, TOKEN, Service
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync import ExecutionCancelled, ExecutionFailed
from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel_client import KernelClient
from rebuno_sync.service import Publication

PROGRAMS = Path(__file__).parent / "programs"


@rebuno.tool
def add(a: int, b: int) -> int:
    return a + b


def total(upto: int) -> int:
    result = 0
    for number in range(upto):
        result = add(result, number)
    return result


# -- one execution, end to end


@rebuno.tool
def leave() -> None:
    raise SystemExit(4)


@pytest.mark.parametrize("in_process", [True, False], ids=["in process", "over HTTP"])
@pytest.mark.parametrize("where", ["handler", "body"])
def test_an_exit_fails_the_execution_once(service: Service, where: str, in_process: bool) -> None:
    """``sys.exit`` ends no thread and no process of an agent, and is no reason to begin again."""
    begun: list[int] = []

    def handler() -> None:
        begun.append(1)
        if where == "handler":
            raise SystemExit(4)
        leave()

    told = "agent_error: SystemExit: 4" if where == "handler" else "tool_error: leave: 4"
    with ExitStack() as stack:
        if in_process:
            agent = stack.enter_context(rebuno.Agent("here", kernel=service.kernel))
            agent.bind(handler)
        else:
            service.agent(handler, "here")
        execution = service.client.create("here")
        with pytest.raises(ExecutionFailed):
            service.client.wait(execution.id, timeout=20)
    assert service.client.get(execution.id).failure_reason == told
    assert len(begun) == 1


def test_an_execution_is_delivered_and_completed(either: Service) -> None:
    """Every effect is recorded once; the operator sees the output, the steps and the events."""
    either.agent(total)
    execution = either.client.create("served", {"upto": 20})
    done = either.client.wait(execution.id, timeout=20)
    assert done.output == 190
    steps = either.client.list_steps(execution.id)
    assert len(steps) == 20
    assert {step.status for step in steps} == {"succeeded"}
    events = [event.type for event in either.client.events(execution.id, limit=1000)]
    assert events.count("step.succeeded") == 20
    assert events.count("dispatch.acked") == 1


def test_many_executions_run_beside_each_other(either: Service) -> None:
    """All are answered, each with its own output."""
    either.agent(total, workers=8)
    ids = [either.client.create("served", {"upto": number % 7}).id for number in range(40)]
    outputs = [either.client.wait(one, timeout=60).output for one in ids]
    assert outputs == [sum(range(number % 7)) for number in range(40)]


def test_effects_of_several_threads_are_recorded_once_each(either: Service) -> None:
    def handler() -> list[int]:
        with rebuno.ThreadPoolExecutor(8) as pool:
            return list(pool.map(add, range(30), [1] * 30))

    either.agent(handler)
    execution = either.client.create("served")
    assert either.client.wait(execution.id, timeout=20).output == list(range(1, 31))
    assert len(either.client.list_steps(execution.id)) == 30


def test_a_failure_reaches_the_operator_with_its_reason(either: Service) -> None:
    """In the words of protocol.md 13.7."""

    @rebuno.tool
    def broken() -> None:
        raise ValueError("no")

    either.agent(lambda: broken())
    with pytest.raises(ExecutionFailed) as caught:
        either.run()
    assert caught.value.reason == "tool_error: broken: no"


def test_a_failure_is_in_the_agents_log_with_its_traceback(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel is told one line; where it came from, the log of the agent says."""

    def reads_a_missing_member() -> int:
        return {"a": 1}["b"]

    service.agent(reads_a_missing_member)
    with pytest.raises(ExecutionFailed) as caught:
        service.run()
    execution_id = caught.value.execution_id
    told = f"execution {execution_id} of served failed: agent_error: KeyError: 'b'"
    [record] = wait_until(
        lambda: [it for it in caplog.records if it.levelname == "ERROR"], "the agent's log"
    )
    assert record.getMessage() == told
    assert record.exc_info is not None
    assert "reads_a_missing_member" in (record.exc_text or logging.Formatter().format(record))


def test_a_failure_that_no_file_can_hold_is_in_the_log_all_the_same(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """A lone surrogate would be an error of whoever writes the log."""

    def fails() -> None:
        raise ValueError("half a pair: \ud800")

    service.agent(fails)
    with pytest.raises(ExecutionFailed, match="half a pair"):
        service.run()
    wait_until(lambda: "half a pair" in caplog.text, "the agent's log")
    assert "in fails" in caplog.text
    caplog.text.encode()


def test_an_agent_without_the_kernels_secret_is_told_what_to_do(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning: nothing else shows that no delivery will come. It goes on asking, since it may be
    registered yet.
    """
    client = KernelClient(service.url, "served", SECRET)
    publication = Publication(client, {"description": "adds"}, patience=0)
    publication.begin()
    [record] = wait_until(
        lambda: [it for it in caplog.records if it.levelname == "WARNING"], "the warning"
    )
    assert "nothing is delivered to agent served: unauthorized: " in record.getMessage()
    assert f"{service.url} knows no agent 'served' with this secret" in record.getMessage()
    assert "register_agent" in record.getMessage()
    service.client.register_agent("served", "http://127.0.0.1:9/webhook", SECRET)
    wait_until(lambda: metadata_of(service), "the description")
    publication.close()
    client.close()


def test_a_subagent_without_an_api_key_is_told_what_to_do(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``subagent`` asks as an operator does: the tool's failure names the variable to set."""
    monkeypatch.delenv("REBUNO_API_KEY", raising=False)

    @rebuno.tool
    def ask() -> Any:
        return rebuno.subagent("helper")

    service.agent(lambda: ask())
    with pytest.raises(ExecutionFailed, match=r"request without an API key.*REBUNO_API_KEY"):
        service.run()


def test_an_input_that_does_not_fit_fails_the_execution(service: Service) -> None:
    service.agent(total)
    with pytest.raises(ExecutionFailed, match="input_invalid: "):
        service.run({"wrong": 1})


def test_an_output_that_is_no_json_fails_the_execution(service: Service) -> None:
    service.agent(lambda: threading.Lock())
    with pytest.raises(ExecutionFailed, match="output_invalid: "):
        service.run()


def test_c3_an_agent_serves_from_a_plain_thread(service: Service) -> None:
    """``run`` outside the main thread touches no signal; ``close`` from elsewhere ends it."""
    agent = rebuno.Agent("threaded", secret=SECRET, base_url=service.url)
    with background(lambda: agent.run(total, host="127.0.0.1", port=0)) as running:
        wait_until(lambda: service.wire.count("metadata"), "the agent's description")
        agent.close()
        running.result()
    agent.close()


def test_two_agents_of_one_process_keep_apart(service: Service) -> None:
    service.agent(total, "one", webhook_path="/one")

    def greet(name: str) -> str:
        return f"Hello {name}"

    service.agent(greet, "two", webhook_path="/two")
    assert service.run({"upto": 4}, "one") == 6
    assert service.run({"name": "Ada"}, "two") == "Hello Ada"


def test_an_agent_takes_its_executions_straight_from_a_kernel_of_its_process(
    tmp_path: Path,
) -> None:
    """No URL, no secret, no webhook, and it is registered."""
    with Kernel(tmp_path / "own.db") as kernel:
        agent = rebuno.Agent("here", kernel=kernel)
        agent.bind(total)
        execution = kernel.create("here", {"upto": 5})
        assert kernel.wait(execution.id, timeout=20).output == 10
        with pytest.raises(RuntimeError, match="takes no webhooks"):
            _ = agent.app
        agent.close()
        late = kernel.create("here", {"upto": 5})
        assert kernel.get(late.id).status == "running"
        assert kernel.claim(late.id) is not None, "a closed agent has not taken it"


# -- leases


def test_c6_a_body_of_several_leases_runs_once_over_http(tmp_path: Path) -> None:
    """Heartbeats keep the lease for as long as the body takes."""
    bodies: list[float] = []

    @rebuno.tool
    def slow() -> int:
        bodies.append(time.monotonic())
        threading.Event().wait(3.0)
        return len(bodies)

    with Service(tmp_path, lease_timeout=0.8) as service:
        service.agent(lambda: slow())
        assert service.run() == 1
        assert len(bodies) == 1


def test_a_cancelled_execution_ends_its_handler_within_a_second(service: Service) -> None:
    """The kernel's notice makes the agent ask at once; it does not wait for its next heartbeat."""
    began = threading.Event()
    ended: list[float] = []

    def handler() -> None:
        began.set()
        try:
            rebuno.execution().wait(60)
        finally:
            ended.append(time.monotonic())

    agent = service.agent(handler)
    execution = service.client.create("served")
    assert began.wait(20)
    cancelled = time.monotonic()
    service.client.cancel(execution.id)
    assert agent.join(20)
    assert ended[0] - cancelled < 1.0
    with pytest.raises(ExecutionCancelled):
        service.client.wait(execution.id)


def test_without_notices_a_cancel_is_seen_at_the_next_primitive(tmp_path: Path) -> None:
    began, go_on = threading.Event(), threading.Event()

    def handler() -> None:
        began.set()
        go_on.wait(20)
        add(1, 2)

    with Service(tmp_path, extensions=False) as service:
        agent = service.agent(handler)
        execution = service.client.create("served")
        assert began.wait(20)
        service.client.cancel(execution.id)
        go_on.set()
        assert agent.join(20)
        assert service.client.list_steps(execution.id) == []


# -- lost answers


def test_the_handler_notices_nothing_of_lost_answers_but_the_delay(service: Service) -> None:
    """With request ids, a submit whose answer was lost is asked for again, and nothing is done
    twice."""
    service.agent(total)
    for word in ("steps", "batch"):
        service.wire.lose_reply(word, times=2)
        service.wire.lose_request(word, times=2)
    service.wire.lose_reply("complete", times=1)
    execution = service.client.create("served", {"upto": 12})
    assert service.client.wait(execution.id, timeout=30).output == 66
    assert len(service.client.list_steps(execution.id)) == 12
    events = [event.type for event in service.client.events(execution.id, limit=1000)]
    assert events.count("dispatch.acked") == 1


def test_without_request_ids_a_lost_submit_ends_the_attempt_and_the_next_one_replays(
    tmp_path: Path,
) -> None:
    bodies: list[int] = []

    @rebuno.tool
    def work(number: int) -> int:
        bodies.append(number)
        return number

    def handler() -> list[int]:
        return [work(number) for number in range(4)]

    with Service(tmp_path, extensions=False, lease_timeout=1.0) as service:
        service.agent(handler)
        service.wire.before("steps", lambda: None)
        service.wire.lose_reply("steps")
        assert service.run() == [0, 1, 2, 3]
        assert sorted(bodies) == [0, 1, 2, 3]


def test_c33_a_kernel_that_is_away_for_a_while_only_delays(tmp_path: Path) -> None:
    """Closed and opened again on the same file and port while a handler works."""
    between = threading.Event()
    away, back = threading.Event(), threading.Event()

    def handler() -> int:
        first = add(1, 2)
        between.set()
        away.wait(20)
        return add(first, 3)

    with Service(tmp_path) as service:
        service.agent(handler)
        execution = service.client.create("served")
        assert between.wait(20)
        service.wire.lose_request("steps", times=3)
        service.wire.lose_request("batch", times=3)
        away.set()
        assert service.client.wait(execution.id, timeout=20).output == 6
        back.set()
        events = [event.type for event in service.client.events(execution.id)]
        assert events.count("dispatch.acked") == 1


def test_c32_a_result_that_the_kernel_refuses_is_recorded_as_a_failure(either: Service) -> None:
    """The effect is not repeated. Where its outcome had been held the attempt ends, and the replay
    raises what the handler did not see live."""
    bodies: list[int] = []
    seen: list[str] = []

    @rebuno.tool
    def work() -> str:
        bodies.append(1)
        return "cannot be stored"

    def handler() -> str:
        try:
            work()
        except rebuno.ToolError as error:
            seen.append(error.message)
        return add(1, 1) and "went on"

    refusal = b'{"code": "internal_error", "message": "unsupported Unicode escape sequence"}'
    either.agent(handler)
    # Alone or in a batch, as it comes.
    answer = b'{"results": [{"status": 500, "body": ' + refusal + b"}]}"
    either.wire.refuse("batch", 200, answer, times=1)
    either.wire.refuse("complete", 500, refusal, times=3)
    assert either.run() == "went on"
    assert bodies == [1]
    assert "not storable by this kernel" in seen[-1]


# -- closing


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """Lets bodies that ignore their cancel flag end."""
    event = threading.Event()
    yield event
    event.set()


def test_closing_lets_handlers_finish_and_refuses_what_comes(service: Service) -> None:
    began, go_on = threading.Event(), threading.Event()

    def handler() -> str:
        began.set()
        go_on.wait(20)
        return "finished"

    agent = service.agent(handler, grace=20.0)
    execution = service.client.create("served")
    assert began.wait(20)
    with background(agent.close) as closing:
        wait_until(
            lambda: agent.webhook.handle({}, b"").status == 401 and agent._closed, "the closing"
        )
        late = service.client.create("served")
        wait_until(
            lambda: any(e.type == "dispatch.failed" for e in service.client.events(late.id)),
            "a refusal of the late one",
        )
        go_on.set()
        closing.result()
    assert service.client.wait(execution.id, timeout=5).output == "finished"
    agent.close()


def test_c10_closing_gives_the_leases_back_for_another_process_to_take_over(
    service: Service, stuck: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """What runs and what waits: due at once, no strike, no step marked failed; a body that goes on
    is told of in the log, with its stack."""
    began = threading.Event()

    @rebuno.tool
    def hang() -> None:
        began.set()
        stuck.wait(30)

    def handler() -> None:
        hang()

    agent = service.agent(handler, grace=0.2, workers=1)
    running = service.client.create("served")
    assert began.wait(20)
    waiting = service.client.create("served")
    wait_until(lambda: len(agent._service()._webhook.deliveries) == 2, "both deliveries")  # type: ignore[attr-defined]
    started = time.monotonic()
    with caplog.at_level(logging.WARNING):
        agent.close()
    assert time.monotonic() - started < 2.0
    assert "stuck.wait(30)" in caplog.text
    server = service._agents.pop()[1]
    server.close()

    taken: list[str] = []
    service.agent(lambda: taken.append(rebuno.execution().id))
    for execution in (running, waiting):
        service.client.wait(execution.id, timeout=5)
    assert sorted(taken) == sorted([running.id, waiting.id])
    [step] = service.client.list_steps(running.id)
    assert step.status == "executing"


@pytest.mark.parametrize("busy", [True, False], ids=["with a body", "idle"])
def test_c10_sigterm_ends_the_process_within_its_grace(tmp_path: Path, busy: bool) -> None:
    """The lease is back within it, and another process completes the execution."""
    import signal

    with Service(tmp_path) as service:
        script = ChildScript(PROGRAMS / "serving_agent.py", tmp_path, url=service.url)
        with script.start(agent="child", secret=SECRET, body_seconds=30, grace=1.0) as child:
            url = child.says(lambda said: isinstance(said, str), "its address")
            service.client.register_agent("child", url, SECRET)
            execution = service.client.create("child") if busy else None
            if busy:
                child.hears({"body": 1})
            started = time.monotonic()
            child.signal(signal.SIGTERM)
            assert child.ends_within(3.0), child.errors
            assert time.monotonic() - started < (2.5 if busy else 2.0)
            assert child.returncode() == 0, child.errors
        if execution is not None:
            [step] = service.client.list_steps(execution.id)
            assert step.status == "executing"
            with script.start(agent="child", secret=SECRET, body_seconds=0, grace=1.0) as second:
                url = second.says(lambda said: isinstance(said, str), "its address")
                service.client.register_agent("child", url, SECRET)
                assert service.client.wait(execution.id, timeout=5).output == "done"


def test_c10_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    import signal

    with Service(tmp_path) as service:
        script = ChildScript(PROGRAMS / "serving_agent.py", tmp_path, url=service.url)
        with script.start(agent="child", secret=SECRET, body_seconds=30, grace=20.0) as child:
            url = child.says(lambda said: isinstance(said, str), "its address")
            service.client.register_agent("child", url, SECRET)
            service.client.create("child")
            child.hears({"body": 1})
            child.signal(signal.SIGTERM)
            assert not child.ends_within(0.5)
            child.signal(signal.SIGTERM)
            assert child.ends_within(1.0)
            assert child.returncode() == -signal.SIGTERM


def test_a_closed_agent_refuses_and_closes_again_without_a_word(service: Service) -> None:
    agent = rebuno.Agent("closed", secret=SECRET, base_url=service.url)
    agent.close()
    agent.bind(total)
    agent.close()
    assert agent.join(0)
    agent.run(total, host="127.0.0.1", port=0)


# -- what an agent says of itself


class Answer(BaseModel):
    text: str


def metadata_of(service: Service, agent_id: str = "served") -> Any:
    return service.client.get_agent(agent_id).metadata


def test_an_agent_publishes_what_it_takes_and_gives(service: Service) -> None:
    """Once, beside its first delivery (protocol.md 13.10)."""
    service.agent(total, description="adds numbers", output_schema=Answer)
    service.run({"upto": 2})
    service.run({"upto": 3})
    published = wait_until(lambda: metadata_of(service), "the description")
    assert published["description"] == "adds numbers"
    assert published["input_schema"]["properties"] == {"upto": {"type": "integer"}}
    assert published["output_schema"]["required"] == ["text"]
    assert service.wire.count("metadata") == 1


def test_a_description_that_was_lost_is_published_with_the_next_delivery(
    service: Service,
) -> None:
    service.agent(total)
    service.wire.lose_request("metadata")
    service.run({"upto": 2})
    wait_until(lambda: service.wire.count("metadata") == 1, "the first try")
    wait_until(lambda: service.run({"upto": 2}) and metadata_of(service), "the description")


def test_an_agent_that_was_started_before_it_was_registered_is_described_later(
    service: Service,
) -> None:
    """The kernel does not know it yet: that is no refusal of its description."""
    service.agent(total)
    service.wire.refuse("metadata", 404, b'{"code":"not_found","message":"not found"}')
    service.run({"upto": 2})
    wait_until(lambda: service.wire.count("metadata") == 1, "the first try")
    wait_until(lambda: service.run({"upto": 2}) and metadata_of(service), "the description")


def test_a_description_that_is_refused_is_not_sent_again(service: Service) -> None:
    """Older kernels have no place for it; their deliveries are served all the same."""
    service.agent(total)
    service.wire.refuse("metadata", 404, b"404 page not found\n")
    assert service.run({"upto": 2}) == 1
    wait_until(lambda: service.wire.count("metadata") == 1, "the first try")
    assert service.run({"upto": 3}) == 3
    assert service.wire.count("metadata") == 1


# -- construction


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("REBUNO_URL", "REBUNO_AGENT_SECRET", "REBUNO_SIGNATURE"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"agent_id": ""}, "agent_id must not be empty"),
        ({"agent_id": "a\nb"}, "printable ASCII"),
        ({"secret": ""}, "secret"),
        ({"secret": None}, "REBUNO_AGENT_SECRET"),
        ({"base_url": None}, "REBUNO_URL"),
        ({"base_url": "kernel:8080"}, "http://"),
        ({"workers": 0}, "workers"),
        ({"grace": -1.0}, "grace"),
        ({"webhook_path": "webhook"}, "begin with /"),
    ],
)
def test_a_bad_argument_is_refused_by_name(
    bare: pytest.MonkeyPatch, arguments: dict[str, Any], message: str
) -> None:
    good = {"agent_id": "a", "secret": "s", "base_url": "http://localhost"}
    with pytest.raises(ValueError, match=message):
        rebuno.Agent(**{**good, **arguments})


def test_url_and_secret_come_from_the_environment(
    service: Service, bare: pytest.MonkeyPatch
) -> None:
    bare.setenv("REBUNO_URL", service.url + "/")
    bare.setenv("REBUNO_AGENT_SECRET", SECRET)
    agent = rebuno.Agent("from-environment")
    agent.bind(total)
    service.client.register_agent("from-environment", "", SECRET)
    agent._service().begin()
    wait_until(lambda: metadata_of(service, "from-environment"), "the description")


@pytest.mark.parametrize("pinned", ["v1", "body"])
def test_the_form_of_signatures_can_be_pinned(
    service: Service, bare: pytest.MonkeyPatch, pinned: str
) -> None:
    bare.setenv("REBUNO_SIGNATURE", pinned)
    agent = rebuno.Agent("pinned", secret=SECRET, base_url=service.url)
    agent.bind(total)
    service.client.register_agent("pinned", "", SECRET, signature="body")
    agent._service().begin()
    wait_until(lambda: metadata_of(service, "pinned"), "the description")
    [request] = service.wire.of("metadata")
    scheme = {"v1": "v1=", "body": "sha256="}[pinned]
    assert request.headers["rebuno-signature"].startswith(scheme)


def test_an_unknown_form_of_signatures_is_refused(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("REBUNO_SIGNATURE", "v2")
    with pytest.raises(ValueError, match="'v1' or 'body'"):
        rebuno.Agent("a", secret="s", base_url="http://localhost")


def test_an_agent_without_a_handler_says_so() -> None:
    agent = rebuno.Agent("a", secret="s", base_url="http://localhost")
    with pytest.raises(RuntimeError, match=r"agent\.bind"):
        _ = agent.app


def test_serving_without_the_extra_names_it(tmp_path: Path) -> None:
    """In a process where waitress cannot be imported."""
    script = ChildScript(PROGRAMS / "no_waitress.py", tmp_path)
    assert "rebuno-sync[serve]" in script.run()


def test_nothing_starts_before_the_first_delivery(tmp_path: Path) -> None:
    """Construction, ``bind`` and ``app`` start no thread and connect to nothing."""
    script = ChildScript(PROGRAMS / "at_rest.py", tmp_path)
    assert script.run() == {"threads": ["MainThread"], "connected": False}


def test_forked_children_serve_on_their_own(tmp_path: Path) -> None:
    """C4: the parent used its agent, client and kernel; four children use them again, and nothing
    that they inherited is touched: no connection, no thread, no lock."""
    with Service(tmp_path) as service:
        options = ("-W", "error", "-W", "ignore::DeprecationWarning")
        script = ChildScript(PROGRAMS / "forked_agents.py", tmp_path, options=options)
        service.client.register_agent("forked", "", SECRET)
        given = {"url": service.url, "token": TOKEN, "secret": SECRET, "children": 4}
        assert script.run(**given, seconds=60) == [10] * 5
