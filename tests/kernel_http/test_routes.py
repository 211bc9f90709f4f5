"""Every route of protocol.md 2 that this kernel has: its answers, its refusals in their order."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import LeaseKey

from .moves import Inbox, path_of, start, submit
from .wire import AGENT, OTHER, SECRET, Wire

NOBODY = str(uuid.UUID(int=7))


# -- operators


def test_creating_answers_201(wire: Wire) -> None:
    """The execution is running; its input comes back as the text that was sent."""
    answer = wire.operate("POST", "/v0/executions", b'{"agent_id":"agent","input":{"n": 1e2}} junk')
    assert answer.status == 201
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert answer.json["status"] == "running"
    assert b'"input":{"n": 1e2}' in answer.body
    again = wire.operate("GET", f"/v0/executions/{answer.json['id']}")
    assert (again.status, again.body) == (200, answer.body)


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"agent_id": "nobody"}, 404, "not_found"),
        ({}, 404, "not_found"),
        ({"agent_id": AGENT, "idempotency_key": " "}, 400, "validation_error"),
        ({"agent_id": AGENT, "color": "red"}, 400, "validation_error"),
        ({"agent_id": 7}, 400, "validation_error"),
        ({"agent_id": AGENT, "session": " "}, 400, "validation_error"),
        ({"agent_id": AGENT, "spawned_by": {"execution_id": NOBODY}}, 400, "validation_error"),
    ],
)
def test_a_create_that_is_refused(
    wire: Wire, fields: dict[str, Any], status: int, code: str
) -> None:
    """An unknown agent is not found; what is unknown, wrong or not built yet is a bad request."""
    answer = wire.operate("POST", "/v0/executions", fields)
    assert (answer.status, answer.code) == (status, code)


def test_what_is_not_built_says_so(wire: Wire) -> None:
    """A field that the protocol knows and this kernel does not have yet is named."""
    answer = wire.operate("POST", "/v0/executions", {"agent_id": AGENT, "concurrency_key": "s"})
    assert "concurrency_key" in answer.json["message"]
    assert "yet" in answer.json["message"]


def test_empty_fields_of_every_generation_are_accepted(wire: Wire) -> None:
    """A client that always sends the fields of its own generation is served, when they are
    empty."""
    unbuilt = {
        "agent_version": "",
        "concurrency_key": "",
        "session": None,
        "parent_execution_id": None,
        "spawned_by": None,
        "on_behalf_of": "",
        "idempotency_key": "",
    }
    assert wire.operate("POST", "/v0/executions", {"agent_id": AGENT, **unbuilt}).status == 201


def test_keys_of_a_body_match_in_any_case(wire: Wire) -> None:
    """Go's decoder does not mind the case of a key."""
    assert wire.operate("POST", "/v0/executions", {"Agent_ID": AGENT}).status == 201


def test_a_body_of_null_has_no_fields(wire: Wire) -> None:
    """It is decoded, to nothing: the agent is then unknown."""
    assert wire.operate("POST", "/v0/executions", b"null").code == "not_found"


@pytest.mark.parametrize("body", [b"", b" ", b"[]", b'"x"', b"{", b'{"agent_id"}', b"\xff", b"{,}"])
def test_a_body_that_is_no_object_is_refused(wire: Wire, body: bytes) -> None:
    """Whatever else it is."""
    answer = wire.operate("POST", "/v0/executions", body)
    assert (answer.status, answer.code) == (400, "validation_error")


def test_pages_of_executions(wire: Wire, kernel: Kernel) -> None:
    """Newest first; a cursor is there only when more follow; an empty page has an empty list."""
    assert wire.operate("GET", "/v0/executions").json == {"executions": []}
    ids = [kernel.create(AGENT).id for _ in range(3)][::-1]
    first = wire.operate("GET", "/v0/executions?limit=2").json
    assert [it["id"] for it in first["executions"]] == ids[:2]
    second = wire.operate("GET", f"/v0/executions?limit=2&cursor={first['next_cursor']}").json
    assert [it["id"] for it in second["executions"]] == ids[2:]
    assert "next_cursor" not in second
    assert wire.operate("GET", "/v0/executions?agent_id=other").json == {"executions": []}
    for query in ("limit=x", "limit=1.5", "cursor=x"):
        assert wire.operate("GET", f"/v0/executions?{query}").code == "validation_error"


def test_events(wire: Wire, kernel: Kernel) -> None:
    """Ascending, after a number; what is no number counts as none."""
    execution = kernel.create(AGENT)
    path = f"/v0/executions/{execution.id}/events"
    events = wire.operate("GET", path).json
    assert [event["event_seq"] for event in events] == [1, 2, 3]
    assert wire.operate("GET", f"{path}?after_seq=1&limit=1").json == events[1:2]
    assert wire.operate("GET", f"{path}?after_seq=x&limit=-1").json == events
    assert wire.operate("GET", f"{path}?after_seq=3").json == []
    assert wire.operate("GET", f"{path}?after_seq={10**30}").json == events
    assert wire.operate("GET", f"/v0/executions/{NOBODY}/events").code == "not_found"


def test_cancelling(wire: Wire, kernel: Kernel) -> None:
    """204 once, then a conflict; an unknown one is not found."""
    execution = kernel.create(AGENT)
    path = f"/v0/executions/{execution.id}/cancel"
    assert wire.operate("POST", path).status == 204
    again = wire.operate("POST", path)
    assert (again.status, again.code) == (409, "conflict")
    assert wire.operate("POST", f"/v0/executions/{NOBODY}/cancel").status == 404


@pytest.mark.parametrize("form", ["{}", "{{{}}}", "urn:uuid:{}", "URN:UUID:{}", "plain", "upper"])
def test_an_id_in_the_path_may_have_any_form_of_a_uuid(
    wire: Wire, kernel: Kernel, form: str
) -> None:
    """Those of Go's parser."""
    execution_id = kernel.create(AGENT).id
    written = {"plain": execution_id.replace("-", ""), "upper": execution_id.upper()}.get(
        form, form.format(execution_id)
    )
    answer = wire.operate("GET", f"/v0/executions/{written}")
    assert answer.status == 200
    assert answer.json["id"] == execution_id


@pytest.mark.parametrize("name", ["x", "0" * 31, "0" * 33, "{" + "0" * 32 + "}", f"{NOBODY}%20"])
def test_an_id_that_is_no_uuid_is_a_bad_request(wire: Wire, name: str) -> None:
    answer = wire.operate("GET", f"/v0/executions/{name}")
    assert (answer.status, answer.code) == (400, "validation_error")


# -- agents, as operators see them


def test_registering(wire: Wire, clock: ManualClock) -> None:
    """201 with the stored row, which never shows the secret; a short lease is the default's."""
    fields = {
        "id": "new",
        "webhook_url": "http://x/y",
        "secret": "hidden-secret",
        "lease_timeout_seconds": 12.5,
    }
    answer = wire.operate("POST", "/v0/agents", fields)
    assert answer.status == 201
    assert answer.json == {
        "id": "new",
        "webhook_url": "http://x/y",
        "registered_at": "2026-01-01T12:00:00Z",
        "lease_timeout_seconds": 12.5,
    }
    assert wire.operate("GET", "/v0/agents/new").body == answer.body
    clock.advance(60)
    again = wire.operate("POST", "/v0/agents", {"id": "new", "lease_timeout_seconds": 9.9})
    assert again.json == {
        "id": "new",
        "webhook_url": "",
        "registered_at": "2026-01-01T12:01:00Z",
    }
    listed = wire.operate("GET", "/v0/agents")
    assert [agent["id"] for agent in listed.json] == [AGENT, "new", OTHER]
    assert SECRET.encode() not in listed.body


@pytest.mark.parametrize("seconds", ["1000000001", "2e9", "1e308", "1e400"])
def test_a_lease_that_no_agent_takes_is_refused(wire: Wire, seconds: str) -> None:
    """400 naming the field; 1e9 seconds are the longest."""
    body = f'{{"id": "new", "lease_timeout_seconds": {seconds}}}'.encode()
    answer = wire.operate("POST", "/v0/agents", body)
    assert (answer.status, answer.code) == (400, "validation_error")
    assert "lease_timeout_seconds" in answer.json["message"]
    assert wire.operate("GET", "/v0/agents/new").status == 404
    body = b'{"id": "new", "lease_timeout_seconds": 1e9}'
    assert wire.operate("POST", "/v0/agents", body).status == 201


@pytest.mark.parametrize("seconds", [0, -1, 9.99])
def test_a_short_lease_is_the_kernels_default(wire: Wire, seconds: float) -> None:
    """Protocol.md 2.3."""
    fields = {"id": "new", "lease_timeout_seconds": seconds}
    answer = wire.operate("POST", "/v0/agents", fields)
    assert answer.status == 201
    assert "lease_timeout_seconds" not in answer.json


@pytest.mark.parametrize(
    "url",
    [
        *("x", "agent/webhook", "/webhook", "ftp://host/webhook", "http:", "http://", "http:///w"),
        *("https://:8080/webhook", "http://host:port/w", "http://host:99999/w", "http://[::1/w"),
        *("file:///etc/passwd", "localhost:5000/webhook", "http://host:0/w"),
    ],
)
def test_a_webhook_that_is_no_address_is_refused(wire: Wire, url: str) -> None:
    """400 with what it must be, before anything is delivered there."""
    answer = wire.operate("POST", "/v0/agents", {"id": "new", "webhook_url": url, "secret": "s"})
    assert (answer.status, answer.code) == (400, "validation_error")
    assert "webhook_url must be an http:// or https:// address" in answer.json["message"]


@pytest.mark.parametrize(
    "url",
    [
        *("", "http://h", "https://agent.example:8443/a/b?c=d", "http://127.0.0.1:5000/webhook"),
        *("http://[::1]:5000/webhook", "HTTP://HOST/W", "http://user:secret@host/webhook"),
        *("https://caf\u00e9.example/webhook", "http://my_agent:5000/webhook"),
    ],
)
def test_any_http_address_is_a_webhook(wire: Wire, url: str) -> None:
    """It is kept as it was given; the empty one is that of an agent without a webhook."""
    answer = wire.operate("POST", "/v0/agents", {"id": "new", "webhook_url": url, "secret": "s"})
    assert answer.status == 201
    assert answer.json["webhook_url"] == url


def test_the_form_of_signatures_is_registered(wire: Wire) -> None:
    """`v1` and `body` are the forms; another is refused."""
    for form in ("v1", "body", ""):
        assert wire.operate("POST", "/v0/agents", {"id": "a", "signature": form}).status == 201
    assert wire.operate("POST", "/v0/agents", {"id": "a", "signature": "v2"}).status == 400
    assert wire.operate("POST", "/v0/agents", {"id": ""}).status == 400
    assert wire.operate(
        "POST", "/v0/agents", b'{"id":"a","lease_timeout_seconds":1e999}'
    ).status == (400)


def test_deleting_an_agent(wire: Wire, kernel: Kernel) -> None:
    """204 when nothing of it runs, else a conflict; 404 when there is none."""
    execution = kernel.create(AGENT)
    refused = wire.operate("DELETE", f"/v0/agents/{AGENT}")
    assert (refused.status, refused.code) == (409, "conflict")
    kernel.cancel(execution.id)
    assert wire.operate("DELETE", f"/v0/agents/{AGENT}").status == 204
    assert wire.operate("DELETE", f"/v0/agents/{AGENT}").code == "not_found"
    assert wire.operate("GET", f"/v0/agents/{AGENT}").code == "not_found"
    assert kernel.get(execution.id).status == "cancelled"


def test_an_agents_name_in_a_path_is_escaped(wire: Wire) -> None:
    wire.operate("POST", "/v0/agents", {"id": "a/b é"})
    assert wire.operate("GET", "/v0/agents/a%2Fb%20%C3%A9").json["id"] == "a/b é"


def test_metadata(wire: Wire) -> None:
    """An agent publishes what it is, and operators see it."""
    schema = {"type": "object"}
    metadata = {"description": "does", "input_schema": schema, "output_schema": None}
    assert wire.act("PUT", f"/v0/agents/{AGENT}/metadata", metadata).status == 204
    assert wire.operate("GET", f"/v0/agents/{AGENT}").json["metadata"] == metadata
    registered = {"id": AGENT, "webhook_url": "", "secret": SECRET}
    assert wire.operate("POST", "/v0/agents", registered).status == 201
    assert wire.operate("GET", f"/v0/agents/{AGENT}").json["metadata"] == metadata
    assert wire.act("PUT", f"/v0/agents/{OTHER}/metadata", metadata).code == "forbidden"
    assert wire.act("PUT", f"/v0/agents/{AGENT}/metadata", {"x": 1}).code == "validation_error"


def test_health(wire: Wire) -> None:
    """Both probes are open to everybody."""
    assert wire.send("GET", "/v0/health").json == {"status": "ok"}
    assert wire.send("GET", "/v0/ready").json == {"status": "ready"}


def test_other_paths_and_methods(wire: Wire) -> None:
    """An unknown path is a plain 404, another method an empty 405: neither is an envelope."""
    for path in ("/", "/v0", "/v0/executions/", "/v1/executions", f"/v0/executions/{NOBODY}/forks"):
        answer = wire.operate("GET", path)
        assert answer.status == 404
        assert answer.headers["Content-Type"].startswith("text/plain")
    answer = wire.operate("DELETE", "/v0/executions")
    assert (answer.status, answer.body) == (405, b"")


# -- agents


def test_a_run_over_the_wire(wire: Wire, kernel: Kernel, inbox: Inbox) -> None:
    """Submit, outcome, heartbeat, completion: the decisions of protocol.md 7 and 8."""
    lease = start(kernel, inbox)
    decision = submit(wire, lease, {"a": 1}).json
    assert decision == {"decision": "proceed", "step_id": decision["step_id"]}
    step = path_of(lease, f"/steps/{decision['step_id']}")
    recorded = wire.act("POST", f"{step}/complete", b'{"result": {"n": 1e2}}', lease)
    assert recorded.json == {"decision": "recorded"}
    again = wire.act("POST", f"{step}/complete", {"result": 5}, lease)
    assert again.json == {"decision": "replay", "result": {"n": 100.0}}
    assert b'"result":{"n": 1e2}' in again.body
    assert wire.act("GET", step).json["status"] == "succeeded"
    assert wire.act("POST", path_of(lease, "/heartbeat"), None, lease).status == 204
    failed = submit(wire, lease, {"a": 2}).json["step_id"]
    body = {"error": {"reason": "broken"}}
    answer = wire.act("POST", path_of(lease, f"/steps/{failed}/fail"), body, lease)
    assert answer.json == {"decision": "recorded"}
    assert len(wire.act("GET", path_of(lease, "/steps")).json) == 2
    assert len(wire.act("GET", path_of(lease, "/steps?status=terminal")).json) == 2
    assert wire.act("POST", path_of(lease, "/complete"), {"output": [1]}, lease).status == 204
    assert kernel.get(lease.execution_id).output == [1]
    assert submit(wire, lease).json == {"decision": "execution_terminal"}
    late = wire.act("POST", path_of(lease, "/complete"), {"output": 2}, lease)
    assert (late.status, late.code) == (409, "execution_terminal")
    gone = wire.act("POST", path_of(lease, "/heartbeat"), None, lease)
    assert (gone.status, gone.code) == (409, "lease_superseded")


def test_failing(wire: Wire, kernel: Kernel, inbox: Inbox) -> None:
    """The reason is the text that was sent."""
    lease = start(kernel, inbox)
    assert (
        wire.act("POST", path_of(lease, "/fail"), {"error": "tool_error: x"}, lease).status == 204
    )
    assert kernel.get(lease.execution_id).failure_reason == "tool_error: x"


def test_an_output_may_be_missing(wire: Wire, kernel: Kernel, inbox: Inbox) -> None:
    """Then nothing is recorded; null is recorded as null."""
    for body, recorded in ((b"{}", False), (b'{"output":null}', True)):
        lease = start(kernel, inbox)
        assert wire.act("POST", path_of(lease, "/complete"), body, lease).status == 204
        answer = wire.operate("GET", path_of(lease)).json
        assert ("output" in answer) is recorded


def test_an_outcome_may_be_missing(wire: Wire, kernel: Kernel, inbox: Inbox) -> None:
    """A step that succeeded without a result replays without one; one that failed has null."""
    lease = start(kernel, inbox)
    won, lost = (submit(wire, lease, n).json["step_id"] for n in range(2))
    wire.act("POST", path_of(lease, f"/steps/{won}/complete"), b"{}", lease)
    wire.act("POST", path_of(lease, f"/steps/{lost}/fail"), b"{}", lease)
    assert "result" not in wire.act("GET", path_of(lease, f"/steps/{won}")).json
    assert wire.act("GET", path_of(lease, f"/steps/{lost}")).json["status"] == "failed"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"resources": ["db"]}, "unknown resource"),
        ({"resources": [5]}, "resources"),
        ({"kind": 5}, "kind"),
        ({"color": 1}, "color"),
    ],
)
def test_a_submit_that_is_refused(
    wire: Wire, kernel: Kernel, inbox: Inbox, fields: dict[str, Any], named: str
) -> None:
    """It is a bad request that names the field, and uses up no occurrence."""
    lease = start(kernel, inbox)
    answer = submit(wire, lease, fields=fields)
    assert (answer.status, answer.code) == (400, "validation_error")
    assert named in answer.json["message"]
    step_id = submit(wire, lease, fields={"resources": []}).json["step_id"]
    assert kernel.get_step(lease.execution_id, step_id).occurrence == 0


LEASE_ROUTES: dict[str, tuple[str, bytes]] = {
    "/steps": ("POST", b'{"kind":"k","target":"t"}'),
    "/steps/{step}/complete": ("POST", b'{"result":1}'),
    "/steps/{step}/fail": ("POST", b'{"error":1}'),
    "/steps/{step}/stream": ("POST", b'{"seq":0,"data":"x"}'),
    "/heartbeat": ("POST", b""),
    "/complete": ("POST", b'{"output":1}'),
    "/fail": ("POST", b'{"error":"x"}'),
    "/release": ("POST", b""),
    "/batch": ("POST", b'{"operations":[{"op":"submit","kind":"k","target":"t"}]}'),
}
"""What needs a lease, with a body that is right."""

BODYLESS = {"/heartbeat", "/release"}


def _route(wire: Wire, lease: LeaseKey, rest: str) -> str:
    step_id = submit(wire, lease, "open").json["step_id"]
    return path_of(lease, rest.format(step=step_id))


@pytest.mark.parametrize("rest", LEASE_ROUTES)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Rebuno-Dispatch-Id", ""),
        ("Rebuno-Dispatch-Id", "x"),
        ("Rebuno-Dispatch-Attempt", ""),
        ("Rebuno-Dispatch-Attempt", "0"),
        ("Rebuno-Dispatch-Attempt", "-1"),
        ("Rebuno-Dispatch-Attempt", "1.0"),
        ("Rebuno-Dispatch-Attempt", "9" * 30),
    ],
)
def test_a_lease_header_that_is_wrong(
    wire: Wire, kernel: Kernel, inbox: Inbox, rest: str, name: str, value: str
) -> None:
    """400, and the message names the header; nothing is recorded."""
    lease = start(kernel, inbox)
    target = _route(wire, lease, rest)
    method, body = LEASE_ROUTES[rest]
    before = kernel.events(lease.execution_id)
    wrong = {"Rebuno-Dispatch-Id": lease.dispatch_id, "Rebuno-Dispatch-Attempt": "1", name: value}
    headers = _resigned(wire, method, target, body, wrong)
    answer = wire.send(method, target, body, headers)
    assert (answer.status, answer.code) == (400, "validation_error")
    assert answer.json["message"] == f"validation error: bad or missing {name}"
    assert kernel.events(lease.execution_id) == before


def _resigned(
    wire: Wire, method: str, target: str, body: bytes, lease: dict[str, str]
) -> dict[str, str]:
    class Texts(LeaseKey):
        """Header texts in the place of a lease."""

    texts = Texts("", lease["Rebuno-Dispatch-Id"], lease["Rebuno-Dispatch-Attempt"])  # type: ignore[arg-type]
    return wire.signed(method, target, body, texts)


@pytest.mark.parametrize("rest", LEASE_ROUTES)
def test_the_checks_of_a_lease_route_come_in_their_order(
    wire: Wire, kernel: Kernel, inbox: Inbox, rest: str
) -> None:
    """The path, the body, the headers, and then what the kernel knows: existence before
    ownership, ownership before the lease."""
    lease = start(kernel, inbox)
    target = _route(wire, lease, rest)
    method, body = LEASE_ROUTES[rest]
    elsewhere = target.replace(lease.execution_id, NOBODY)
    no_uuid = target.replace(lease.execution_id, "x")
    gone = lease._replace(attempt=9)
    assert "UUID" in wire.act(method, no_uuid, b"{", None).json["message"]
    if rest not in BODYLESS:
        assert "JSON" in wire.act(method, target, b"{", None).json["message"]
    assert "Rebuno-Dispatch-Id" in wire.act(method, elsewhere, body, None).json["message"]

    def code(answer: Any) -> str:
        """A batch tells of each operation."""
        found = answer.json
        return str(found["results"][0]["body"]["code"] if "results" in found else found["code"])

    assert code(wire.act(method, elsewhere, body, gone, agent=OTHER)) == "not_found"
    assert code(wire.act(method, target, body, gone, agent=OTHER)) == "forbidden"
    assert code(wire.act(method, target, body, gone)) == "lease_superseded"
    if "{step}" in rest:
        missing = path_of(lease, rest.format(step="f" * 64))
        assert code(wire.act(method, missing, body, gone, agent=OTHER)) == "not_found"


def test_agents_read_their_own_executions(wire: Wire, kernel: Kernel, inbox: Inbox) -> None:
    """Another agent's are forbidden, and an unknown one is not found; operators read all."""
    lease = start(kernel, inbox)
    step_id = submit(wire, lease).json["step_id"]
    for rest in ("", "/steps", f"/steps/{step_id}"):
        target = path_of(lease, rest)
        assert wire.act("GET", target).status == 200
        assert wire.operate("GET", target).status == 200
        assert wire.act("GET", target, agent=OTHER).code == "forbidden"
        unknown = target.replace(lease.execution_id, NOBODY)
        assert wire.act("GET", unknown, agent=OTHER).code == "not_found"


def test_deltas_are_checked(wire: Wire, kernel: Kernel, inbox: Inbox) -> None:
    """204 for an executing step, a conflict for a settled one, 400 for too much at once."""
    lease = start(kernel, inbox)
    step_id = submit(wire, lease).json["step_id"]
    target = path_of(lease, f"/steps/{step_id}/stream")
    assert wire.act("POST", target, {"seq": 0, "data": "é" * 3500}, lease).status == 204
    assert wire.act("POST", target, {"seq": 1, "data": "é" * 3501}, lease).status == 400
    assert wire.act("POST", target, {"seq": 2**63, "data": ""}, lease).status == 400
    wire.act("POST", path_of(lease, f"/steps/{step_id}/complete"), {"result": 1}, lease)
    late = wire.act("POST", target, {"seq": 2, "data": "x"}, lease)
    assert (late.status, late.code) == (409, "conflict")


def test_a_lease_of_a_process_opens_nothing_on_the_wire(wire: Wire, kernel: Kernel) -> None:
    """Its occurrences are counted in that process, so a request that names it is superseded."""
    claim = kernel.claim(kernel.create(AGENT).id)
    assert claim is not None
    for rest in ("/heartbeat", "/steps", "/complete", "/release"):
        method, body = LEASE_ROUTES[rest]
        answer = wire.act(method, path_of(claim.lease, rest), body, claim.lease)
        assert (answer.status, answer.code) == (409, "lease_superseded")
    kernel.agent.complete(claim.lease, "1")


def test_a_lease_of_a_process_is_not_for_agents_that_name_no_attempt(
    wire: Wire, kernel: Kernel
) -> None:
    """They are told what they understand, and change nothing."""
    kernel.register_agent(AGENT, secret=SECRET, signature="body")
    claim = kernel.claim(kernel.create(AGENT).id)
    assert claim is not None
    unnamed = claim.lease._replace(attempt=0)
    body = b'{"kind":"tool_call","target":"t"}'
    answer = wire.in_body_form("POST", path_of(unnamed, "/steps"), body, unnamed)
    assert answer.json == {"decision": "execution_blocked"}
    assert wire.in_body_form("POST", path_of(unnamed, "/heartbeat"), b"", unnamed).status == 204
    answer = wire.in_body_form("POST", path_of(unnamed, "/complete"), b"{}", unnamed)
    assert answer.code == "lease_superseded"
    assert kernel.list_steps(unnamed.execution_id) == []


@pytest.mark.parametrize("rest", ["/release", "/suspend", "/resources", "/batch"])
def test_what_the_first_agents_do_not_know_needs_an_attempt(
    wire: Wire, kernel: Kernel, inbox: Inbox, rest: str
) -> None:
    """A bad request without one, as from any agent."""
    kernel.register_agent(
        AGENT, webhook_url="http://agent/webhook", secret=SECRET, signature="body"
    )
    lease = start(kernel, inbox)._replace(attempt=0)
    bodies = {
        "/resources": b'{"key":"k","driver_id":"d"}',
        "/batch": b'{"operations":[{"op":"complete"}]}',
    }
    answer = wire.in_body_form("POST", path_of(lease, rest), bodies.get(rest, b""), lease)
    assert (answer.status, answer.code) == (400, "validation_error")
    assert answer.json["message"].endswith("bad or missing Rebuno-Dispatch-Attempt")


def test_a_large_body(wire: Wire, kernel: Kernel, inbox: Inbox) -> None:
    """More than 10 MiB is 401 where the body is signed, and 400 where a bearer sends it."""
    lease = start(kernel, inbox)
    padding = b" " * (10 * 2**20)
    assert wire.operate("POST", "/v0/executions", b'{"agent_id":"agent"}' + padding).status == 400
    large = b'{"output":1}' + padding
    assert wire.act("POST", path_of(lease, "/complete"), large, lease).status == 401
    fits = b'{"output":"' + b"x" * (10 * 2**20 - 13) + b'"}'
    assert len(fits) == 10 * 2**20
    assert wire.act("POST", path_of(lease, "/complete"), fits, lease).status == 204


@pytest.mark.parametrize("text", ['"a\\ud800b"', '"\\u0000"', '"\\u2028<&>"', "1E+2", "[[],{}]"])
def test_values_come_back_as_the_text_that_was_sent(
    wire: Wire, kernel: Kernel, inbox: Inbox, text: str
) -> None:
    """In args, results, errors, inputs and outputs; whoever reads them."""
    raw = text.encode()
    created = wire.operate("POST", "/v0/executions", b'{"agent_id":"agent","input":%b}' % raw)
    lease = inbox.lease(created.json["id"])
    body = b'{"kind":"k","target":"t","args":%b}' % raw
    step_id = wire.act("POST", path_of(lease, "/steps"), body, lease).json["step_id"]
    step = path_of(lease, f"/steps/{step_id}")
    wire.act("POST", f"{step}/complete", b'{"result":%b}' % raw, lease)
    shown = wire.operate("GET", step).body
    assert b'"args":%b,"result":%b' % (raw, raw) in shown
    wire.act("POST", path_of(lease, "/complete"), b'{"output":%b}' % raw, lease)
    assert b'"output":%b' % raw in wire.operate("GET", path_of(lease)).body
    assert b'"output":%b' % raw in wire.operate("GET", path_of(lease, "/events")).body


def test_texts_that_utf_8_cannot_hold_are_mended(wire: Wire, kernel: Kernel, inbox: Inbox) -> None:
    """Lone surrogates and bytes that are no UTF-8 become U+FFFD, each by itself."""
    lease = start(kernel, inbox)
    body = b'{"kind":"k","target":"a\\ud800b\xff\xfe","args":"\xff"}'
    step_id = wire.act("POST", path_of(lease, "/steps"), body, lease).json["step_id"]
    step = kernel.get_step(lease.execution_id, step_id)
    assert (step.target, step.args) == ("a\ufffdb\ufffd\ufffd", "\ufffd")


def test_the_body_of_an_error_is_an_envelope(wire: Wire) -> None:
    answer = wire.operate("GET", f"/v0/executions/{NOBODY}")
    assert json.loads(answer.body) == {
        "code": "not_found",
        "message": f"not found: execution {NOBODY}",
    }
