"""Who may send what (protocol.md 1.3 to 1.6), and 401 for every tampering."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel.http import KernelApp
from rebuno_sync.kernel.http.auth import Auth
from rebuno_sync.kernel.http.routes import ROUTES
from rebuno_sync.signing import sign_body
from rebuno_sync.types import LeaseKey

from .moves import Inbox, path_of, start
from .wire import AGENT, OTHER, SECRET, TOKEN, Wire

NOBODY = "00000000-0000-7000-8000-000000000007"

Request = tuple[str, str, bytes, dict[str, str]]
"""Method, target, body and headers."""

BODY = b'{"output":1}'


def _header(name: str, value: str) -> Callable[[Request], Request]:
    def tamper(request: Request) -> Request:
        method, target, body, headers = request
        return method, target, body, {**headers, name: value}

    return tamper


def _without(name: str) -> Callable[[Request], Request]:
    def tamper(request: Request) -> Request:
        method, target, body, headers = request
        return method, target, body, {k: v for k, v in headers.items() if k != name}

    return tamper


TAMPERINGS: dict[str, Callable[[Request], Request]] = {
    "another method": lambda r: ("PUT", *r[1:]),
    "another path": lambda r: (r[0], r[1].replace("/complete", "/fail"), *r[2:]),
    "another spelling of the path": lambda r: (
        r[0],
        r[1].replace("/executions/0", "/executions/%30"),
        *r[2:],
    ),
    "a query": lambda r: (r[0], r[1] + "?x=1", *r[2:]),
    "a bare question mark": lambda r: (r[0], r[1] + "?", *r[2:]),
    "another body": lambda r: (*r[:2], r[2].replace(b"1", b"2"), r[3]),
    "one more space": lambda r: (*r[:2], r[2] + b" ", r[3]),
    "no body": lambda r: (*r[:2], b"", r[3]),
    "another second": lambda r: _header("Rebuno-Timestamp", str(int(r[3]["Rebuno-Timestamp"]) + 1))(
        r
    ),
    "another spelling of the time": lambda r: _header(
        "Rebuno-Timestamp", "+" + r[3]["Rebuno-Timestamp"]
    )(r),
    "no time": _without("Rebuno-Timestamp"),
    "another dispatch": _header("Rebuno-Dispatch-Id", NOBODY),
    "another spelling of the dispatch": lambda r: _header(
        "Rebuno-Dispatch-Id", r[3]["Rebuno-Dispatch-Id"].upper()
    )(r),
    "no dispatch": _without("Rebuno-Dispatch-Id"),
    "another attempt": _header("Rebuno-Dispatch-Attempt", "2"),
    "another spelling of the attempt": _header("Rebuno-Dispatch-Attempt", "01"),
    "no attempt": _without("Rebuno-Dispatch-Attempt"),
    "two attempts": _header("Rebuno-Dispatch-Attempt", "1, 1"),
    "another agent": _header("Rebuno-Agent-Id", OTHER),
    "an unknown agent": _header("Rebuno-Agent-Id", "nobody"),
    "no agent": _without("Rebuno-Agent-Id"),
    "another signature": _header("Rebuno-Signature", "v1=" + "0" * 64),
    "a signature in capitals": lambda r: _header(
        "Rebuno-Signature", "v1=" + r[3]["Rebuno-Signature"][3:].upper()
    )(r),
    "a signature without its form": lambda r: _header(
        "Rebuno-Signature", r[3]["Rebuno-Signature"][3:]
    )(r),
    "two signatures": lambda r: _header(
        "Rebuno-Signature", f"{r[3]['Rebuno-Signature']}, {r[3]['Rebuno-Signature']}"
    )(r),
    "no signature": _without("Rebuno-Signature"),
    "an odd signature": _header("Rebuno-Signature", "v1=\xff\xfe"),
    "the operators' token beside it": lambda r: _without("Rebuno-Signature")(
        _header("Authorization", f"Bearer {TOKEN}")(r)
    ),
}


@pytest.fixture
def request_(wire: Wire, kernel: Kernel, inbox: Inbox, clock: ManualClock) -> Request:
    """A right request, to complete an execution of an agent with a secret of its own."""
    kernel.register_agent(OTHER, webhook_url="http://x", secret="another secret")
    lease = start(kernel, inbox)
    target = path_of(lease, "/complete")
    return "POST", target, BODY, wire.signed("POST", target, BODY, lease)


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_every_tampering_is_refused(
    wire: Wire, kernel: Kernel, request_: Request, tampering: str
) -> None:
    """401 without a detail whatever signed part is changed, and nothing happens; the request
    itself is accepted."""
    answer = wire.send(*TAMPERINGS[tampering](request_))
    assert answer.status == (405 if tampering == "another method" else 401)
    if answer.status == 401:
        assert answer.json == {"code": "unauthorized", "message": "unauthorized"}
    assert kernel.list(status="completed").executions == []
    assert wire.send(*request_).status == 204


@pytest.mark.parametrize(("seconds", "status"), [(-301, 401), (-300, 204), (300, 204), (301, 401)])
def test_a_request_is_accepted_around_its_time(
    wire: Wire, request_: Request, clock: ManualClock, seconds: int, status: int
) -> None:
    """Five minutes before and after, inclusive."""
    clock.step_wall(seconds)
    assert wire.send(*request_).status == status


def test_the_path_below_a_prefix_is_signed_whole(
    kernel: Kernel, inbox: Inbox, clock: ManualClock
) -> None:
    """A kernel that is mounted below a path verifies what was sent, with that path."""

    class Mounted(KernelApp):
        def __call__(self, environ, start):  # type: ignore[no-untyped-def]
            environ["SCRIPT_NAME"] = "/rebuno"
            environ["PATH_INFO"] = environ["PATH_INFO"].removeprefix("/rebuno")
            return super().__call__(environ, start)

    wire = Wire(kernel, clock, Mounted(kernel, TOKEN))
    lease = start(kernel, inbox)
    target = "/rebuno" + path_of(lease, "/heartbeat")
    assert wire.act("POST", target, b"", lease).status == 204


# -- the body form


@pytest.fixture
def lease(kernel: Kernel, inbox: Inbox) -> LeaseKey:
    return start(kernel, inbox)


def test_the_body_form_is_refused(
    wire: Wire, lease: LeaseKey, caplog: pytest.LogCaptureFixture
) -> None:
    """It can be sent again by whoever has seen it, so it takes a decision; the log says which,
    once."""
    for _ in range(3):
        assert wire.in_body_form("POST", path_of(lease, "/complete"), BODY, lease).status == 401
    (record,) = [it for it in caplog.records if it.levelno == logging.WARNING]
    assert '"signature": "body"' in record.getMessage()
    assert "--accept-body-signatures" in record.getMessage()
    assert SECRET not in caplog.text


def test_a_wrong_body_signature_is_no_hint(
    wire: Wire, lease: LeaseKey, caplog: pytest.LogCaptureFixture
) -> None:
    """Only a right one tells of an agent that needs help."""
    wire.send(
        "POST",
        path_of(lease, "/complete"),
        BODY,
        {"Rebuno-Agent-Id": AGENT, "Rebuno-Signature": "sha256=" + "0" * 64},
    )
    assert caplog.records == []


def test_agents_may_be_registered_for_the_body_form(
    wire: Wire, kernel: Kernel, lease: LeaseKey
) -> None:
    """Then both forms are accepted, from this agent only."""
    kernel.register_agent(AGENT, webhook_url="http://x", secret=SECRET, signature="body")
    target = path_of(lease, "/heartbeat")
    assert wire.in_body_form("POST", target, b"", lease).status == 204
    assert wire.act("POST", target, b"", lease).status == 204
    tampered = {
        "Rebuno-Agent-Id": AGENT,
        "Rebuno-Signature": "sha256=" + "0" * 64,
        "Rebuno-Dispatch-Id": lease.dispatch_id,
        "Rebuno-Dispatch-Attempt": "1",
    }
    assert wire.send("POST", target, b"", tampered).status == 401


def test_a_kernel_may_accept_the_body_form_of_all(
    kernel: Kernel, clock: ManualClock, lease: LeaseKey
) -> None:
    """With `accept_body_signatures`."""
    app = KernelApp(kernel, TOKEN, accept_body_signatures=True)
    wire = Wire(kernel, clock, app)
    answer = wire.in_body_form("POST", path_of(lease, "/complete"), BODY, lease)
    assert answer.status == 204


# -- bearers


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (None, 401),
        ("", 401),
        (f"Bearer {TOKEN}", 200),
        (f"bearer {TOKEN}", 401),
        (TOKEN, 401),
        (f"Bearer {TOKEN.upper()}", 401),
        (f"Bearer {TOKEN} ", 401),
        (f"Bearer  {TOKEN}", 401),
        ("Bearer ", 401),
        ("Bearer \xe9\u20ac", 401),
        (f"Basic {TOKEN}", 401),
    ],
)
def test_a_bearer_sends_the_very_token(wire: Wire, header: str | None, status: int) -> None:
    headers = {} if header is None else {"Authorization": header}
    assert wire.send("GET", "/v0/executions", b"", headers).status == status


@pytest.mark.parametrize(("header", "status"), [(None, 200), ("Bearer x", 401), ("Bearer ", 401)])
def test_without_a_token_everybody_is_an_operator(
    kernel: Kernel, clock: ManualClock, header: str | None, status: int
) -> None:
    """But whoever sends a token has the wrong one."""
    wire = Wire(kernel, clock, KernelApp(kernel))
    headers = {} if header is None else {"Authorization": header}
    assert wire.send("GET", "/v0/executions", b"", headers).status == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://evil.test", 403), ("null", 403), ("http://127.0.0.1:8080", 201), ("", 201)],
)
def test_a_page_of_another_site_is_no_operator(
    kernel: Kernel, clock: ManualClock, origin: str, status: int
) -> None:
    """A browser of this machine sends whatever a page has it send; it names the page's site."""
    wire = Wire(kernel, clock, KernelApp(kernel))
    headers = {"Host": "127.0.0.1:8080", "Origin": origin}
    body = json.dumps({"agent_id": AGENT}).encode()
    assert wire.send("POST", "/v0/executions", body, headers).status == status


ALL = [
    (pattern, method, route.auth)
    for pattern, methods in ROUTES.items()
    for method, route in methods.items()
]


@pytest.mark.parametrize(("pattern", "method", "auth"), ALL)
def test_every_route_asks_who_sends_it(wire: Wire, pattern: str, method: str, auth: Auth) -> None:
    """Without credentials, or with those of the other sort, 401; the probes ask nobody."""
    target = pattern.replace("{id}", NOBODY).replace("{step}", "0" * 64)
    anonymous = wire.send(method, target).status
    as_operator = wire.operate(method, target).status
    as_agent = wire.act(method, target).status
    refused = (anonymous == 401, as_operator == 401, as_agent == 401)
    assert (
        refused
        == {
            Auth.NONE: (False, False, False),
            Auth.BEARER: (True, False, True),
            Auth.HMAC: (True, True, False),
            Auth.EITHER: (True, False, False),
        }[auth]
    )


def test_a_secret_that_was_changed_elsewhere(
    wire: Wire, kernel: Kernel, path: Path, clock: ManualClock, lease: LeaseKey
) -> None:
    """A new secret counts at once, though another process registered it, and the old one for a
    quarter of a second."""
    target = path_of(lease, "/heartbeat")
    old = wire.signed("POST", target, b"", lease)
    assert wire.send("POST", target, b"", old).status == 204
    with Kernel(path, clock=clock) as other:
        other.register_agent(AGENT, webhook_url="http://x", secret="changed")
    new = wire.signed("POST", target, b"", lease, secret="changed")
    assert wire.send("POST", target, b"", new).status == 204
    assert wire.send("POST", target, b"", old).status == 401
    with Kernel(path, clock=clock) as other:
        other.register_agent(AGENT, webhook_url="http://x", secret=SECRET)
    clock.advance(0.25)
    assert wire.send("POST", target, b"", new).status == 401
    kernel.register_agent(AGENT, webhook_url="http://x", secret="changed again")
    assert wire.send("POST", target, b"", old).status == 401


def test_nobody_signs_for_an_agent_without_a_secret(
    wire: Wire, kernel: Kernel, caplog: pytest.LogCaptureFixture
) -> None:
    """Agents of this machine have none, and anybody could sign with it: 401 in either form; the
    log says why, once."""
    kernel.register_agent("local", signature="body")
    target = f"/v0/executions/{kernel.create('local', {'private': True}).id}"
    forged = wire.signed("GET", target, agent="local", secret="")
    assert wire.send("GET", target, b"", forged).status == 401
    forged = {"Rebuno-Agent-Id": "local", "Rebuno-Signature": sign_body("", b"")}
    assert wire.send("GET", target, b"", forged).status == 401
    (record,) = caplog.records
    assert "'local' is registered without a secret" in record.getMessage()
