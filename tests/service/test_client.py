"""``Client``: what an operator asks of a kernel, and what is repeated when no answer comes."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import responses
from support.attempts import background
from support.services import TOKEN, Service
from support.waiting import wait_until
from urllib3.exceptions import MaxRetryError, NewConnectionError

import rebuno_sync as rebuno
from rebuno_sync import (
    ConflictError,
    ExecutionCancelled,
    ExecutionFailed,
    NetworkError,
    NotFoundError,
    UnauthorizedError,
    ValidationError,
)

URL = "http://kernel.test"
EXECUTION = {
    "id": "0f7e",
    "agent_id": "a",
    "status": "running",
    "created_at": "2026-01-01T00:00:00Z",
    "updated_at": "2026-01-01T00:00:00Z",
}


@pytest.fixture
def wire() -> Iterator[responses.RequestsMock]:
    with responses.RequestsMock(assert_all_requests_are_fired=False) as wire:
        yield wire


@pytest.fixture
def client() -> Iterator[rebuno.Client]:
    with rebuno.Client(URL + "/", "key") as client:
        yield client


def refused() -> requests.ConnectionError:
    """As requests says that nobody listens."""
    cause = NewConnectionError(None, "Connection refused")  # type: ignore[arg-type]
    return requests.ConnectionError(MaxRetryError(None, "/", cause))  # type: ignore[arg-type]


def lost() -> requests.ConnectionError:
    return requests.ConnectionError("Connection aborted.")


def sent(wire: responses.RequestsMock) -> list[Any]:
    return [call.request for call in wire.calls]


# -- requests


def test_create_sends_what_was_given_and_nothing_else(
    wire: responses.RequestsMock, client: rebuno.Client
) -> None:
    """A kernel refuses members that it does not know (protocol.md 13.2)."""
    wire.post(URL + "/v0/executions", status=201, json=EXECUTION)
    client.create("a")
    client.create("a", {"x": [1e-05]}, idempotency_key="k", session="s")
    client.create("a", None, spawned_by={"execution_id": "e", "step_id": "s"}, on_behalf_of="o")
    client.create("a", False)
    assert [json.loads(request.body) for request in sent(wire)] == [
        {"agent_id": "a"},
        {"agent_id": "a", "input": {"x": [1e-05]}, "idempotency_key": "k", "session": "s"},
        {
            "agent_id": "a",
            "spawned_by": {"execution_id": "e", "step_id": "s"},
            "on_behalf_of": "o",
        },
        {"agent_id": "a", "input": False},
    ]
    assert all(request.headers["Authorization"] == "Bearer key" for request in sent(wire))


def test_an_input_that_is_no_json_is_refused_before_it_is_sent(
    wire: responses.RequestsMock, client: rebuno.Client
) -> None:
    with pytest.raises(TypeError, match=r"input\.lock"):
        client.create("a", {"lock": threading.Lock()})
    assert sent(wire) == []


def test_without_a_key_no_header_is_sent(
    wire: responses.RequestsMock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one from a .netrc: it would replace the bearer token too."""
    monkeypatch.delenv("REBUNO_API_KEY", raising=False)
    wire.get(URL + "/v0/agents", json=None)
    with rebuno.Client(URL) as client:
        assert client.agents() == []
    assert "Authorization" not in sent(wire)[0].headers


def test_queries_leave_out_what_is_empty(
    wire: responses.RequestsMock, client: rebuno.Client
) -> None:
    wire.get(URL + "/v0/executions/e/events", body="null")
    wire.get(URL + "/v0/executions/e/steps", body="null")
    wire.get(URL + "/v0/executions", json={"executions": None})
    assert client.events("e") == []
    assert client.events("e", 5, limit=7) == []
    assert client.list_steps("e") == []
    assert client.list_steps("e", status="terminal") == []
    assert client.list(agent_id="a&b").executions == []
    assert [request.url.removeprefix(URL + "/v0/executions") for request in sent(wire)] == [
        "/e/events?limit=100",
        "/e/events?after_seq=5&limit=7",
        "/e/steps",
        "/e/steps?status=terminal",
        "?agent_id=a%26b&limit=50",
    ]


def test_ids_are_escaped(wire: responses.RequestsMock, client: rebuno.Client) -> None:
    """They may come from anywhere."""
    wire.get(URL + "/v0/executions/..%2Fagents%3Fx", json=EXECUTION)
    assert client.get("../agents?x").id == "0f7e"


def test_url_and_key_come_from_the_environment(
    wire: responses.RequestsMock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REBUNO_URL", URL + "/")
    monkeypatch.setenv("REBUNO_API_KEY", "from the environment")
    wire.get(URL + "/v0/executions/e", json=EXECUTION)
    with rebuno.Client() as client:
        client.get("e")
    assert sent(wire)[0].headers["Authorization"] == "Bearer from the environment"


@pytest.mark.parametrize("url", [None, "", "kernel:8080"])
def test_an_address_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, url: str | None
) -> None:
    monkeypatch.delenv("REBUNO_URL", raising=False)
    with pytest.raises(ValueError, match="base_url"):
        rebuno.Client(url)


# -- answers


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "validation_error", ValidationError),
        (401, "unauthorized", UnauthorizedError),
        (404, "not_found", NotFoundError),
        (409, "conflict", ConflictError),
        (409, "execution_terminal", ConflictError),
    ],
)
def test_an_envelope_is_an_error_and_never_a_signal(
    wire: responses.RequestsMock, client: rebuno.Client, status: int, code: str, kind: type
) -> None:
    wire.post(URL + "/v0/executions/e/cancel", status=status, json={"code": code, "message": "m"})
    with pytest.raises(kind) as caught:
        client.cancel("e")
    assert caught.value.code == code
    assert len(sent(wire)) == 1


@pytest.mark.parametrize("body", ["", "not JSON", "[]", "{}", "null", "5", "[" * 100_000])
def test_an_answer_that_is_not_the_protocols_is_a_network_error(
    wire: responses.RequestsMock, client: rebuno.Client, body: str
) -> None:
    wire.get(URL + "/v0/executions/e", body=body)
    with pytest.raises(NetworkError):
        client.get("e")


def test_agents_of_the_oldest_kernels_are_read(
    wire: responses.RequestsMock, client: rebuno.Client
) -> None:
    """Their keys are spelled otherwise (protocol.md 3.6)."""
    oldest = {
        "ID": "a",
        "WebhookURL": "http://a/webhook",
        "Secret": "",
        "PolicyBundle": "",
        "RegisteredAt": "0001-01-01T00:00:00Z",
    }
    wire.get(URL + "/v0/agents/a", json=oldest)
    assert client.get_agent("a").webhook_url == "http://a/webhook"


# -- what is repeated


def repeat(wire: responses.RequestsMock, method: str, path: str, failure: Any, answer: Any) -> None:
    if isinstance(failure, int):
        wire.add(method, URL + path, status=failure, body="a gateway's words")
    else:
        wire.add(method, URL + path, body=failure)
    wire.add(method, URL + path, json=answer)


@pytest.mark.parametrize("failure", [refused(), lost(), requests.Timeout(), 502, 503, 504, 500])
def test_what_only_reads_is_repeated(
    wire: responses.RequestsMock, client: rebuno.Client, failure: Any
) -> None:
    repeat(wire, "GET", "/v0/executions/e", failure, EXECUTION)
    assert client.get("e").id == "0f7e"
    assert len(sent(wire)) == 2


@pytest.mark.parametrize("failure", [lost(), requests.Timeout(), 502])
def test_a_create_is_repeated_with_a_key_and_never_without(
    wire: responses.RequestsMock, client: rebuno.Client, failure: Any
) -> None:
    """The kernel finds the execution by it again; a subagent has its step's id for one."""
    for key in ({"idempotency_key": "k"}, {"spawned_by": {"execution_id": "e", "step_id": "s"}}):
        repeat(wire, "POST", "/v0/executions", failure, EXECUTION)
        assert client.create("a", **key).id == "0f7e"  # type: ignore[arg-type]
        wire.reset()
    repeat(wire, "POST", "/v0/executions", failure, EXECUTION)
    with pytest.raises(NetworkError):
        client.create("a")
    assert len(sent(wire)) == 1


@pytest.mark.parametrize("call", ["create", "cancel", "delete_agent"])
@pytest.mark.parametrize("failure", [refused(), requests.ConnectTimeout()])
def test_whatever_was_not_sent_is_repeated(
    wire: responses.RequestsMock, client: rebuno.Client, call: str, failure: Any
) -> None:
    path = {
        "create": "/v0/executions",
        "cancel": "/v0/executions/a/cancel",
        "delete_agent": "/v0/agents/a",
    }[call]
    repeat(wire, "DELETE" if "delete" in call else "POST", path, failure, EXECUTION)
    getattr(client, call)("a")
    assert len(sent(wire)) == 2


def test_a_cancel_that_may_have_arrived_is_not_repeated(
    wire: responses.RequestsMock, client: rebuno.Client
) -> None:
    wire.post(URL + "/v0/executions/e/cancel", body=lost())
    with pytest.raises(NetworkError):
        client.cancel("e")
    assert len(sent(wire)) == 1


def test_in_the_end_it_gives_up_and_says_where(
    wire: responses.RequestsMock, client: rebuno.Client
) -> None:
    wire.get(URL + "/v0/executions/e", body=refused())
    with pytest.raises(NetworkError, match=r"kernel\.test.*GET /v0/executions/e"):
        client.get("e")
    assert 3 < len(sent(wire)) < 10


# -- waiting


def test_wait_gives_the_completed_execution(
    wire: responses.RequestsMock, client: rebuno.Client
) -> None:
    path = URL + "/v0/executions/0f7e"
    wire.get(path, json=EXECUTION)
    wire.get(path, json={**EXECUTION, "status": "blocked"})
    wire.get(path, json={**EXECUTION, "status": "completed", "output": {"a": None}})
    assert client.wait("0f7e", timeout=20).output == {"a": None}


@pytest.mark.parametrize(
    ("status", "kind"), [("failed", ExecutionFailed), ("cancelled", ExecutionCancelled)]
)
def test_wait_raises_how_it_ended_otherwise(
    wire: responses.RequestsMock, client: rebuno.Client, status: str, kind: type
) -> None:
    ended = {**EXECUTION, "status": status, "failure_reason": "why"}
    wire.get(URL + "/v0/executions/0f7e", json=ended)
    with pytest.raises(kind, match="0f7e") as caught:
        client.wait("0f7e")
    assert (caught.value.reason, caught.value.execution_id) == ("why", "0f7e")


def test_wait_ends_with_its_time(wire: responses.RequestsMock, client: rebuno.Client) -> None:
    """The execution goes on."""
    wire.get(URL + "/v0/executions/0f7e", json=EXECUTION)
    with pytest.raises(TimeoutError, match=r"still running after 0\.1 s"):
        client.wait("0f7e", timeout=0.1)


def test_wait_outlasts_a_kernel_that_is_away(
    wire: responses.RequestsMock, client: rebuno.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """It had answered once; the log says once that it is away."""
    path = URL + "/v0/executions/0f7e"
    wire.get(path, json=EXECUTION)
    for _ in range(13):
        wire.get(path, body=refused())
    wire.get(path, json={**EXECUTION, "status": "completed", "output": 1})
    assert client.wait("0f7e", timeout=60).output == 1
    assert [record.message[:30] for record in caplog.records] == ["still waiting for execution 0f"]


def test_a_refused_api_key_is_told_of_with_the_next_step(service: Service) -> None:
    client = rebuno.Client(service.url, "wrong")
    with client, pytest.raises(UnauthorizedError) as caught:
        client.list()
    told = str(caught.value)
    assert told.startswith(f"unauthorized: {service.url} does not accept this API key: Client(")
    assert "REBUNO_API_KEY" in told


@pytest.mark.parametrize("wrong", [None, 7, object()])
def test_an_id_is_a_text(client: rebuno.Client, wrong: Any) -> None:
    """An execution itself, say, is none: the error says what to give."""
    for ask in (client.get, client.wait, client.cancel, client.events, client.list_steps):
        with pytest.raises(TypeError, match=r"give execution\.id"):
            ask(wrong)


def test_what_is_no_kernel_is_told_of_in_a_line(
    wire: responses.RequestsMock, client: rebuno.Client
) -> None:
    """Some other server that answers with JSON."""
    wire.get(URL + "/v0/executions/0f7e", json={"hello": "world"})
    told = r"the answer is not an execution: id: Field required \(and 4 more\)\. Is it a kernel.*"
    with pytest.raises(NetworkError) as caught:
        client.get("0f7e")
    assert re.fullmatch(told, str(caught.value))


def test_run_creates_and_waits(wire: responses.RequestsMock, client: rebuno.Client) -> None:
    wire.post(URL + "/v0/executions", status=201, json=EXECUTION)
    wire.get(
        URL + "/v0/executions/0f7e", json={**EXECUTION, "status": "completed", "output": [1, 2]}
    )
    assert client.run("a", {"x": 1}, idempotency_key="k", timeout=5) == [1, 2]


# -- on a kernel


def test_pages_are_iterated_as_they_are_needed(service: Service) -> None:
    """Newest first, each once."""
    service.kernel.register_agent("a")
    ids = [service.kernel.create("a").id for _ in range(5)]
    page = service.client.list(limit=2)
    assert [it.id for it in page.executions] == [ids[4], ids[3]]
    assert [it.id for it in service.client.iterate(agent_id="a")] == ids[::-1]
    assert list(service.client.iterate(agent_id="another")) == []
    again = service.client.list(limit=2, cursor=page.next_cursor or "")
    assert [it.id for it in again.executions] == [ids[2], ids[1]]


def test_the_operators_methods_work_on_a_kernel(service: Service) -> None:
    """With the names and the answers of ``Kernel``'s own."""
    client, kernel = service.client, service.kernel
    registered = client.register_agent("a", "http://127.0.0.1:1/webhook", "secret")
    assert [registered] == client.agents() == kernel.agents()
    assert client.get_agent("a") == registered
    execution = client.create("a", {"x": 1}, idempotency_key="k")
    assert client.create("a", {"x": 1}, idempotency_key="k").id == execution.id
    assert client.get(execution.id) == kernel.get(execution.id)
    wait_until(
        lambda: client.events(execution.id) == kernel.events(execution.id), "the same events"
    )
    with pytest.raises(ConflictError):
        client.delete_agent("a")
    client.cancel(execution.id)
    with pytest.raises(ConflictError):
        client.cancel(execution.id)
    with pytest.raises(ExecutionCancelled):
        client.wait(execution.id)
    with pytest.raises(NotFoundError):
        client.get_step(execution.id, "00" * 32)
    client.delete_agent("a")
    assert client.agents() == []


def test_a_wrong_token_is_refused(service: Service) -> None:
    with rebuno.Client(service.url, "wrong") as client, pytest.raises(UnauthorizedError):
        client.agents()


# -- threads, forks, the end


def test_threads_share_a_client(service: Service) -> None:
    """Each has its own connection."""
    service.kernel.register_agent("a")

    def work() -> int:
        return len([service.client.create("a", n) for n in range(20)])

    with background(work) as one, background(work) as two:
        assert one.result() + two.result() == 40
    assert len(list(service.client.iterate())) == 40


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_uses_connections_of_its_own(service: Service) -> None:
    service.kernel.register_agent("a")
    service.client.create("a", "parent")
    child = os.fork()
    if not child:
        try:
            with rebuno.Client(service.url, TOKEN) as own:
                own.create("a", "own")
            service.client.create("a", "inherited")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    service.client.create("a", "parent again")
    inputs = [it.input for it in service.client.iterate()]
    assert inputs == ["parent again", "inherited", "own", "parent"]


def test_a_kernel_that_does_not_run_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address, what the system said, and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    with rebuno.Client(url) as client, pytest.raises(NetworkError) as caught:
        client.create("a")
    assert caught.value.repeatable
    assert str(caught.value) == (
        f"cannot connect to {url} for POST /v0/executions: [Errno {errno.ECONNREFUSED}] Connection"
        " refused. Is a kernel running there (rebuno-sync kernel)? Another address: base_url or"
        " REBUNO_URL"
    )


def test_a_wait_in_vain_says_why_the_agent_could_not_be_reached(service: Service) -> None:
    """The last refusal, which the kernel's log of the execution has."""
    service.client.register_agent("away", "http://127.0.0.1:1/webhook", "secret")
    execution = service.client.create("away")
    wait_until(
        lambda: any(e.type == "dispatch.failed" for e in service.client.events(execution.id)),
        "a refusal",
    )
    with pytest.raises(TimeoutError) as caught:
        service.client.wait(execution.id, timeout=0.01)
    assert str(caught.value).startswith(f"execution {execution.id} is still running after 0.01 s: ")
    assert "of it could not be delivered: agent 'away' at 'http://127.0.0.1:1/" in str(caught.value)
    assert "Connection refused" in str(caught.value)


def test_a_wait_says_nothing_of_what_a_kernel_does_not_tell(
    wire: responses.RequestsMock, client: rebuno.Client
) -> None:
    """Other kernels name no reason; where there is no log to read, the time-out is told alone."""
    url = URL + "/v0/executions/0f7e"
    failed = {
        "execution_id": "0f7e",
        "event_seq": 4,
        "type": "dispatch.failed",
        "payload": {"attempt": 2},
        "occurred_at": "2026-01-01T00:00:00Z",
    }
    wire.get(url, json=EXECUTION)
    wire.get(url + "/events", json=[failed])
    with pytest.raises(TimeoutError, match="attempt 2 of it could not be delivered: the kernel's"):
        client.wait("0f7e", timeout=0.0)
    wire.replace(responses.GET, url + "/events", status=403, json={"code": "forbidden"})
    with pytest.raises(TimeoutError, match=r"still running after 0\.0 s$"):
        client.wait("0f7e", timeout=0.0)


def test_a_closed_client_says_so(client: rebuno.Client) -> None:
    client.close()
    client.close()
    with pytest.raises(ValueError, match="is closed"):
        client.agents()


# -- live streams

FRAME = b'data: {"step_id":"s","seq":0,"data":"d"}\n\n'


@pytest.mark.parametrize(("status", "ends"), [("completed", True), ("running", False)])
def test_a_stream_ends_with_its_execution(
    wire: responses.RequestsMock, client: rebuno.Client, *, status: str, ends: bool
) -> None:
    """It looks when the kernel says that nothing has come; a stream that stops before the
    execution has ended has broken off."""
    wire.get(f"{URL}/v0/executions/0f7e/stream", body=FRAME + b": keep-alive\n\n")
    wire.get(f"{URL}/v0/executions/0f7e", json={**EXECUTION, "status": status})
    with client.stream("0f7e") as stream:
        assert next(stream).data == "d"
        with pytest.raises(StopIteration if ends else NetworkError):
            next(stream)


def test_a_stream_that_breaks_off(wire: responses.RequestsMock, client: rebuno.Client) -> None:
    """What is no frame, or half of one, is told."""
    wire.get(f"{URL}/v0/executions/0f7e/stream", body=b"data: {\n\n")
    with client.stream("0f7e") as stream, pytest.raises(NetworkError, match="a delta"):
        next(stream)
