"""``KernelClient`` and its transport: what each failure of a request means."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.attempts import background
from support.stub_server import Ask, StubServer, close_after, cut, hang_up, reply, reset
from support.waiting import wait_until

from rebuno_sync.clock import ManualClock
from rebuno_sync.errors import (
    APIError,
    ConflictError,
    NetworkError,
    NotFoundError,
    UnauthorizedError,
    ValidationError,
)
from rebuno_sync.kernel_client import KernelClient
from rebuno_sync.messages import EXTENSIONS
from rebuno_sync.signing import verify_body, verify_request
from rebuno_sync.transport import Transport
from rebuno_sync.types import LeaseKey, Proposal, Renewal

SECRET = "s3cret"
LEASE = LeaseKey("0f7e", "d15a", 3)
PROPOSAL = Proposal("tool_call", "search", '{"q":"ü"}', canonical=True)
PROCEED = {"decision": "proceed", "step_id": "ab" * 32}
EXECUTION = {
    "id": "0f7e",
    "agent_id": "a",
    "status": "running",
    "created_at": "2026-01-01T00:00:00Z",
    "updated_at": "2026-01-01T00:00:00Z",
}


def client_of(server: StubServer, **options: Any) -> KernelClient:
    return KernelClient(server.url, "agent-1", SECRET, timeout=5.0, **options)


@pytest.fixture
def server() -> Iterator[StubServer]:
    with StubServer(reply(200, PROCEED)) as server:
        yield server


def is_signed(ask: Ask, clock: ManualClock | None = None) -> bool:
    headers = ask.headers
    if headers["rebuno-signature"].startswith("sha256="):
        return verify_body([SECRET], headers["rebuno-signature"], ask.body)
    return verify_request(
        [SECRET],
        method=ask.method,
        target=ask.target,
        signature=[headers["rebuno-signature"]],
        timestamp=[headers["rebuno-timestamp"]],
        dispatch_id=[headers["rebuno-dispatch-id"]] if "rebuno-dispatch-id" in headers else [],
        dispatch_attempt=[headers["rebuno-dispatch-attempt"]]
        if "rebuno-dispatch-attempt" in headers
        else [],
        body=ask.body,
        now=int(headers["rebuno-timestamp"]),
    )


# -- requests


def calls(client: KernelClient) -> dict[str, Callable[[], object]]:
    return {
        "POST /v0/executions/0f7e/steps": lambda: client.submit(LEASE, PROPOSAL),
        "POST /v0/executions/0f7e/steps/5/complete": lambda: client.complete_step(LEASE, "5", "1"),
        "POST /v0/executions/0f7e/steps/5/fail": lambda: client.fail_step(LEASE, "5", '{"a":1}'),
        "POST /v0/executions/0f7e/heartbeat": lambda: client.renew([LEASE]),
        "POST /v0/executions/0f7e/complete": lambda: client.complete(LEASE, '{"b":2}'),
        "POST /v0/executions/0f7e/fail": lambda: client.fail(LEASE, 'for "this"'),
        "POST /v0/executions/0f7e/release?interrupted=1": lambda: client.release(
            LEASE, interrupted=True
        ),
        "POST /v0/executions/0f7e/release?interrupted=1&strike=0": lambda: client.release(
            LEASE, interrupted=True, strike=False
        ),
        "GET /v0/executions/0f7e": lambda: client.get_execution("0f7e"),
        "GET /v0/executions/0f7e/steps": lambda: client.list_steps("0f7e"),
        "PUT /v0/agents/agent-1/metadata": lambda: client.put_metadata({"description": None}),
    }


@pytest.mark.parametrize("form", ["v1", "body"])
@pytest.mark.parametrize("request_line", calls(KernelClient("http://h", "a", "s")))
def test_every_request_is_signed_and_names_its_lease(
    server: StubServer, request_line: str, form: str
) -> None:
    """The routes of protocol.md 2.2; a GET has no lease."""
    client = client_of(server, signature=form)
    client.learn_extensions("release")
    server.then(reply(200, EXECUTION if "GET" in request_line else PROCEED))
    if request_line.endswith("0f7e/steps") and request_line.startswith("GET"):
        server.then(reply(200, b"null"))
    calls(client)[request_line]()
    [ask] = server.asked
    assert f"{ask.method} {ask.target}" == request_line
    assert is_signed(ask)
    assert ask.headers["rebuno-agent-id"] == "agent-1"
    assert ask.headers["rebuno-extensions"] == ", ".join(EXTENSIONS)
    leased = ask.method == "POST"
    assert ask.headers.get("rebuno-dispatch-id") == ("d15a" if leased else None)
    assert ask.headers.get("rebuno-dispatch-attempt") == ("3" if leased else None)


def test_bodies_have_exactly_the_fields_of_their_routes(server: StubServer) -> None:
    """Kernels refuse what they do not know; JSON of users goes in as it is."""
    client = client_of(server)
    for call in (
        lambda: client.submit(LEASE, PROPOSAL),
        lambda: client.complete_step(LEASE, "5", '{"x":1e-05}'),
        lambda: client.fail_step(LEASE, "5", '{"message":"no"}'),
        lambda: client.complete(LEASE, "null"),
        lambda: client.fail(LEASE, 'for "this"'),
    ):
        call()
    assert [ask.body.decode() for ask in server.asked] == [
        '{"kind":"tool_call","target":"search","args":{"q":"ü"},"idempotency":"safe_to_retry"}',
        '{"result":{"x":1e-05}}',
        '{"error":{"message":"no"}}',
        '{"output":null}',
        '{"error":"for \\"this\\""}',
    ]


def test_without_an_attempt_its_header_is_left_out(server: StubServer) -> None:
    """As the first generation of kernels wants it."""
    client = client_of(server, signature="body")
    client.submit(LEASE._replace(attempt=0), PROPOSAL)
    assert "rebuno-dispatch-attempt" not in server.asked[0].headers
    assert server.asked[0].headers["rebuno-dispatch-id"] == "d15a"


def test_a_base_path_is_part_of_what_is_signed(server: StubServer) -> None:
    client = KernelClient(server.url + "/prefix/", "a", SECRET)
    client.submit(LEASE, PROPOSAL)
    assert server.asked[0].target == "/prefix/v0/executions/0f7e/steps"
    assert is_signed(server.asked[0])


# -- answers


def test_a_decision_is_read_with_its_json_as_text(server: StubServer) -> None:
    answer = b'{"decision":"replay","step_id":"s","result":{"a":[1,2.5,null,"\\ud83d\\ude00"]}}'
    server.then(reply(200, answer))
    decision = client_of(server).submit(LEASE, PROPOSAL)
    assert (decision.decision, decision.step_id) == ("replay", "s")
    assert decision.result == {"a": [1, 2.5, None, "\U0001f600"]}
    assert decision.error_json is None


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "validation_error", ValidationError),
        (401, "unauthorized", UnauthorizedError),
        (404, "not_found", NotFoundError),
        (409, "lease_superseded", ConflictError),
        (409, "execution_terminal", ConflictError),
        (500, "internal_error", APIError),
        (413, "validation_error", ValidationError),
    ],
)
def test_an_envelope_is_an_api_error(
    server: StubServer, status: int, code: str, kind: type[APIError]
) -> None:
    """The kernel has answered: nothing is unknown."""
    server.then(reply(status, {"code": code, "message": "in its words"}))
    with pytest.raises(kind) as caught:
        client_of(server, signature="v1").submit(LEASE, PROPOSAL)
    assert (caught.value.code, caught.value.status_code) == (code, status)
    assert caught.value.message.startswith("in its words")


@pytest.mark.parametrize("status", [502, 503, 504])
@pytest.mark.parametrize("body", [b"<html>bad gateway</html>", b'{"code":"x","message":"y"}'])
def test_a_gateways_answer_is_unknown(server: StubServer, status: int, body: bytes) -> None:
    """The request may have been done behind it."""
    server.then(reply(status, body))
    with pytest.raises(NetworkError) as caught:
        client_of(server).submit(LEASE, PROPOSAL)
    assert not caught.value.repeatable


@pytest.mark.parametrize(
    "body", [b"", b"not JSON", b"[]", b"{}", b"null", b'{"step_id":"s"}', b"[" * 100_000]
)
def test_an_answer_that_is_not_the_protocols_is_unknown(server: StubServer, body: bytes) -> None:
    server.then(reply(200, body))
    with pytest.raises(NetworkError):
        client_of(server).submit(LEASE, PROPOSAL)


def test_a_panic_without_an_envelope_is_unknown(server: StubServer) -> None:
    server.then(reply(500, b""))
    with pytest.raises(NetworkError):
        client_of(server).submit(LEASE, PROPOSAL)


def test_redirects_are_not_followed(server: StubServer) -> None:
    """A signature holds for one target."""
    server.then(reply(307, b"", Location="/elsewhere"))
    with pytest.raises(APIError):
        client_of(server).submit(LEASE, PROPOSAL)
    assert len(server.asked) == 1


# -- what was sent


def refused_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return f"http://127.0.0.1:{sock.getsockname()[1]}"


def test_a_refused_connection_may_be_tried_again() -> None:
    """Nothing was sent; the message says what to look at."""
    client = KernelClient(refused_url(), "a", "s")
    with pytest.raises(NetworkError, match=r"cannot connect to http.*Is the kernel running") as got:
        client.submit(LEASE, PROPOSAL)
    assert got.value.repeatable


@pytest.mark.parametrize(
    "act", [hang_up, reset, cut(0), cut(10), cut(40), cut(60)], ids=lambda act: act.__qualname__
)
def test_an_answer_that_does_not_come_whole_is_unknown(server: StubServer, act: Any) -> None:
    """Never repeated by the client itself, whatever the call."""
    server.then(act)
    client = client_of(server)
    with pytest.raises(NetworkError, match="was lost") as caught:
        client.submit(LEASE, PROPOSAL)
    assert not caught.value.repeatable
    assert len(server.asked) == 1


def test_with_a_request_id_a_lost_submit_may_be_repeated(server: StubServer) -> None:
    server.then(hang_up)
    with pytest.raises(NetworkError) as caught:
        client_of(server).submit(LEASE, PROPOSAL._replace(request_id="77"))
    assert caught.value.repeatable
    assert server.asked[0].headers["rebuno-request-id"] == "77"


def test_what_only_reads_may_be_repeated(server: StubServer) -> None:
    server.then(hang_up)
    with pytest.raises(NetworkError) as caught:
        client_of(server).get_execution("0f7e")
    assert caught.value.repeatable


def test_an_answer_that_takes_too_long_is_unknown(server: StubServer) -> None:
    answered = threading.Event()

    def slow(ask: Ask, sock: socket.socket) -> bool:
        answered.wait(20)
        return False

    server.then(slow)
    client = KernelClient(server.url, "a", SECRET, timeout=0.2)
    with pytest.raises(NetworkError) as caught:
        client.submit(LEASE, PROPOSAL)
    answered.set()
    assert not caught.value.repeatable


def test_bodies_over_ten_mebibytes_are_never_sent(server: StubServer) -> None:
    """The refusal names the size."""
    client = client_of(server)
    with pytest.raises(ValidationError, match="10485772 bytes are not sent"):
        client.complete_step(LEASE, "s", '"' + "x" * (10 * 2**20 - 1) + '"')
    assert server.asked == []


# -- connections


def test_a_connection_is_kept_and_used_again(server: StubServer) -> None:
    client = client_of(server)
    for _ in range(5):
        client.submit(LEASE, PROPOSAL)
    assert server.connections == 1


def test_a_connection_that_was_closed_meanwhile_is_noticed_before_it_is_used(
    server: StubServer,
) -> None:
    """No request fails for it, so none has to be repeated."""
    server.then(close_after(reply(200, PROCEED)))
    client = client_of(server)
    for number in range(5):
        client.submit(LEASE, PROPOSAL)
        assert len(server.asked) == number + 1
        [idle] = client._transport._idle
        wait_until(lambda idle=idle: not _still_open(idle), "the closing seen by this side")
    assert server.connections == 5


def _still_open(connection: Any) -> bool:
    try:
        return bool(connection.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return True


def test_a_server_that_says_close_is_believed(server: StubServer) -> None:
    server.then(reply(200, PROCEED, Connection="close"))
    client = client_of(server)
    for _ in range(3):
        client.submit(LEASE, PROPOSAL)
    assert server.connections == 3
    assert client._transport._idle == []


def test_threads_do_not_share_a_connection(server: StubServer) -> None:
    client = client_of(server)
    with background(lambda: [client.submit(LEASE, PROPOSAL) for _ in range(50)]) as other:
        for _ in range(50):
            client.submit(LEASE, PROPOSAL)
        other.result()
    assert server.connections <= 2
    assert len(server.asked) == 100


def test_a_closed_client_keeps_no_connection(server: StubServer) -> None:
    """What is under way ends by itself."""
    client = client_of(server)
    client.submit(LEASE, PROPOSAL)
    client.close()
    assert client._transport._idle == []
    client.submit(LEASE, PROPOSAL)
    assert client._transport._idle == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_does_not_speak_on_its_parents_connections(server: StubServer) -> None:
    client = client_of(server)
    client.submit(LEASE, PROPOSAL)
    child = os.fork()
    if not child:
        try:
            client.submit(LEASE, PROPOSAL)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    client.submit(LEASE, PROPOSAL)
    assert [ask.connection for ask in server.asked] == [0, 1, 0]


@pytest.mark.parametrize("url", ["", "kernel:8080", "ftp://kernel", "http://", "/v0"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="http://"):
        Transport(url)


# -- the form of signatures


def only(form: str) -> Any:
    """A kernel that accepts one form."""

    def act(ask: Ask, sock: socket.socket) -> bool:
        right = ask.headers["rebuno-signature"].startswith(form) and is_signed(ask)
        answer = reply(200, PROCEED) if right else reply(401, {"code": "unauthorized"})
        return answer(ask, sock)

    return act


def test_the_form_is_found_out_once(server: StubServer) -> None:
    """v1 first; a kernel that answers it with 401 gets the body form from then on."""
    server.then(only("sha256="))
    client = client_of(server)
    for _ in range(3):
        client.submit(LEASE, PROPOSAL)
    forms = [ask.headers["rebuno-signature"].partition("=")[0] for ask in server.asked]
    assert forms == ["v1", "sha256", "sha256", "sha256"]


def test_after_the_first_accepted_request_a_401_changes_nothing(server: StubServer) -> None:
    """A stale timestamp, say: it must not be signed over its body alone for that."""
    server.then(only("v1="))
    client = client_of(server)
    client.submit(LEASE, PROPOSAL)
    server.then(only("sha256="))
    for _ in range(2):
        with pytest.raises(UnauthorizedError):
            client.submit(LEASE, PROPOSAL)
    assert all(ask.headers["rebuno-signature"].startswith("v1=") for ask in server.asked)


def test_a_wrong_secret_leaves_the_form_open(server: StubServer) -> None:
    server.then(reply(401, {"code": "unauthorized"}))
    client = client_of(server)
    for _ in range(2):
        with pytest.raises(UnauthorizedError):
            client.submit(LEASE, PROPOSAL)
    server.then(only("sha256="))
    client.submit(LEASE, PROPOSAL)
    server.then(only("sha256="))
    client.submit(LEASE, PROPOSAL)


def test_threads_that_find_the_form_out_at_once_do_not_confuse_each_other(
    server: StubServer,
) -> None:
    server.then(only("sha256="))
    client = client_of(server)
    together = threading.Barrier(8)
    failed: list[BaseException] = []

    def work() -> None:
        together.wait()
        try:
            client.submit(LEASE, PROPOSAL)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


@pytest.mark.parametrize(("pinned", "other"), [("v1", "sha256="), ("body", "v1=")])
def test_a_pinned_form_is_the_only_one(server: StubServer, pinned: str, other: str) -> None:
    server.then(only(other))
    with pytest.raises(UnauthorizedError):
        client_of(server, signature=pinned).submit(LEASE, PROPOSAL)
    assert len(server.asked) == 1


# -- heartbeats


@pytest.mark.parametrize(
    ("act", "renewal"),
    [
        (reply(204), Renewal.ACCEPTED),
        (reply(409, {"code": "lease_superseded"}), Renewal.SUPERSEDED),
        (reply(404, {"code": "not_found"}), Renewal.SUPERSEDED),
        (reply(500, {"code": "internal_error"}), Renewal.UNKNOWN),
        (reply(400, {"code": "validation_error"}), Renewal.UNKNOWN),
        (reply(503, b""), Renewal.UNKNOWN),
        (hang_up, Renewal.UNKNOWN),
    ],
    ids=["204", "409", "404", "500", "400", "503", "no answer"],
)
def test_what_became_of_a_heartbeat(server: StubServer, act: Any, renewal: Renewal) -> None:
    """Never an exception."""
    server.then(act)
    assert client_of(server, signature="v1").renew([LEASE]) == [renewal]


@pytest.mark.parametrize(
    ("status", "renewal"), [("running", Renewal.ACCEPTED), ("cancelled", Renewal.SUPERSEDED)]
)
def test_on_a_kernel_without_attempts_the_executions_status_decides(
    server: StubServer, status: str, renewal: Renewal
) -> None:
    """It accepts every heartbeat."""
    server.then(reply(204), reply(200, {**EXECUTION, "status": status}))
    assert client_of(server).renew([LEASE._replace(attempt=0)]) == [renewal]


def test_many_leases_are_renewed_in_one_request_where_the_kernel_can(server: StubServer) -> None:
    client = client_of(server)
    client.learn_extensions("leases")
    server.then(reply(200, {"superseded": [1]}))
    leases = [LEASE, LEASE._replace(attempt=4), LEASE._replace(execution_id="2")]
    answers = client.renew(leases)
    assert answers == [Renewal.ACCEPTED, Renewal.SUPERSEDED, Renewal.ACCEPTED]
    [ask] = server.asked
    assert (ask.target, is_signed(ask)) == ("/v0/leases", True)
    assert json.loads(ask.body)["leases"][1] == {
        "execution_id": "0f7e",
        "dispatch_id": "d15a",
        "dispatch_attempt": 4,
    }


RUNNER = "00000000-0000-4000-8000-000000000001"


def test_every_request_under_a_lease_names_its_runner(server: StubServer) -> None:
    """One that has none names none."""
    client = client_of(server)
    decision = reply(200, {"decision": "recorded"})
    server.then(decision, decision, *[reply(204)] * 3, decision)
    owned = LEASE._replace(runner=RUNNER)
    client.submit(owned, Proposal("tool_call", "t", "{}"))
    client.complete_step(owned, "step", "1")
    client.renew([owned])
    client.complete(owned, "1")
    client.fail(owned, "x")
    client.submit(LEASE, Proposal("tool_call", "t", "{}"))
    named = [ask.headers.get("rebuno-runner") for ask in server.asked]
    assert named == [*[RUNNER] * 5, None]


def test_leases_that_are_renewed_together_have_a_runner_each(server: StubServer) -> None:
    """In the body: one request speaks for many."""
    client = client_of(server)
    client.learn_extensions("leases, runner")
    server.then(reply(200, {"superseded": []}))
    client.renew([LEASE._replace(runner=RUNNER), LEASE])
    [ask] = server.asked
    assert "rebuno-runner" not in ask.headers
    listed = json.loads(ask.body)["leases"]
    assert [entry.get("runner") for entry in listed] == [RUNNER, None]


def test_a_kernel_that_has_lost_an_extension_gets_plain_requests(server: StubServer) -> None:
    """One of an older release has taken its place; nothing fails for it for long."""
    client = client_of(server)
    client.learn_extensions("leases, release, request-id, batch")
    server.then(reply(404, b"404 page not found\n"))
    assert client.renew([LEASE, LEASE]) == [Renewal.UNKNOWN] * 2
    with pytest.raises(NetworkError) as caught:
        client.batch(LEASE, ["{}"])
    assert caught.value.repeatable
    assert not client.batches
    server.then(reply(204))
    assert client.renew([LEASE, LEASE]) == [Renewal.ACCEPTED] * 2
    assert [ask.target for ask in server.asked[-2:]] == ["/v0/executions/0f7e/heartbeat"] * 2


def test_nothing_of_an_extension_is_used_that_the_kernel_did_not_name(server: StubServer) -> None:
    client = client_of(server)
    client.learn_extensions("attempts, novelty")
    assert not client.wants_request_ids
    assert not client.batches
    client.release(LEASE)
    assert server.asked == []
