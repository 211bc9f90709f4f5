"""API keys: what they open, what they do not, and that no token is ever shown twice (protocol.md
1.3, 2.3, 3.7)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.services import Service

import rebuno_sync as rebuno
from rebuno_sync import ConflictError, ForbiddenError, NotFoundError, ValidationError
from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel.http import KernelApp
from rebuno_sync.kernel.http.auth import Auth
from rebuno_sync.kernel.http.routes import ROUTES
from rebuno_sync.kernel.http.scopes import SCOPES
from rebuno_sync.types import Scope

from .moves import Inbox, start
from .wire import AGENT, Answer, Wire

NOBODY = "00000000-0000-7000-8000-000000000007"

BEARER = [
    (pattern, method)
    for pattern, methods in ROUTES.items()
    for method, route in methods.items()
    if route.auth in (Auth.BEARER, Auth.EITHER)
]


def ask(wire: Wire, token: str, method: str = "GET", target: str = "/v0/executions") -> Answer:
    return wire.send(method, target, b"", {"Authorization": f"Bearer {token}"})


def target_of(pattern: str) -> str:
    return re.sub(r"\{\w+\}", NOBODY, pattern)


# -- what a key opens


@pytest.mark.parametrize(("pattern", "method"), BEARER)
def test_every_route_of_operators_has_its_scope(
    wire: Wire, kernel: Kernel, pattern: str, method: str
) -> None:
    """A key with exactly its scopes passes; one with all the others is forbidden, and told which
    it lacks."""
    needed = set(SCOPES[f"{method} {pattern}"])
    target = target_of(pattern)
    fitting = kernel.create_key("fits", sorted(needed))
    assert ask(wire, fitting.token, method, target).status not in (401, 403)
    others = kernel.create_key("does not", sorted(set(Scope) - needed))
    answer = ask(wire, others.token, method, target)
    assert (answer.status, answer.code) == (403, "forbidden")
    assert min(needed) in answer.json["message"]


def test_who_may_not_set_a_policy_does_not_take_one_away(wire: Wire, kernel: Kernel) -> None:
    """Registering again removes the policy (protocol.md 2.3), except by a key without its scope."""
    kernel.set_policy(AGENT, "rules: [{id: none, then: {decision: deny}}]")
    body = b'{"id": "%s", "webhook_url": "", "secret": "s"}' % AGENT.encode()
    cases = [{"target": "t"}]
    for scopes, decision in ((["agents:write"], "deny"), (["agents:write", "policies:write"], "")):
        token = kernel.create_key("registers", scopes).token
        answer = wire.send("POST", "/v0/agents", body, {"Authorization": f"Bearer {token}"})
        assert answer.status == 201
        if decision:
            (result,) = kernel.test_policy(AGENT, cases=cases).results
            assert result.decision == decision
    with pytest.raises(ValidationError, match="has no policy"):
        kernel.test_policy(AGENT, cases=cases)


def test_scopes_are_of_routes_that_ask_for_a_bearer() -> None:
    """No scope is given to a route that agents alone may use."""
    signed = {
        f"{method} {pattern}"
        for pattern, methods in ROUTES.items()
        for method, route in methods.items()
        if route.auth in (Auth.HMAC, Auth.NONE)
    }
    assert signed & SCOPES.keys() == set()


def test_a_key_is_no_agent(wire: Wire, kernel: Kernel, inbox: Inbox) -> None:
    """Not even one with every scope passes where an agent signs."""
    lease = start(kernel, inbox)
    key = kernel.create_key("all", list(Scope))
    target = f"/v0/executions/{lease.execution_id}/heartbeat"
    assert ask(wire, key.token, "POST", target).status == 401


def test_a_key_counts_also_where_no_token_is_configured(kernel: Kernel, clock: ManualClock) -> None:
    """Whoever sends no header may do everything; whoever sends a key, what it is for."""
    wire = Wire(kernel, clock, KernelApp(kernel))
    key = kernel.create_key("reader", ["agents:read"])
    assert wire.send("GET", "/v0/executions").status == 200
    assert ask(wire, key.token, "GET", "/v0/agents").status == 200
    assert ask(wire, key.token).status == 403


@pytest.mark.parametrize(
    "spoil",
    [
        lambda token: token[:-1] + ("A" if token[-1] != "A" else "B"),
        lambda token: token[:-1],
        lambda token: token + "A",
        lambda token: token.removeprefix("rbk_"),
        lambda token: token.replace(".", ""),
        lambda token: "rbk_" + NOBODY + token[token.index(".") :],
        lambda token: "rbk_x" + token[token.index(".") :],
        lambda token: token.swapcase(),
        lambda token: token + "\xff",
    ],
)
def test_a_token_that_is_none(wire: Wire, kernel: Kernel, spoil: object) -> None:
    """401 for anything but the very token."""
    token = kernel.create_key("k", list(Scope)).token
    assert ask(wire, token).status == 200
    assert callable(spoil)
    answer = ask(wire, spoil(token))
    assert (answer.status, answer.json["message"]) == (401, "unauthorized")


# -- their lives


def test_rotating_and_revoking_end_a_token_at_once(wire: Wire, kernel: Kernel) -> None:
    first = kernel.create_key("k", ["executions:read"])
    assert ask(wire, first.token).status == 200
    second = kernel.rotate_key(first.id)
    assert ask(wire, first.token).status == 401
    assert ask(wire, second.token).status == 200
    kernel.revoke_key(first.id)
    assert ask(wire, second.token).status == 401


def test_what_another_process_does_to_a_key(
    wire: Wire, kernel: Kernel, path: Path, clock: ManualClock
) -> None:
    """It counts at once."""
    old = kernel.create_key("k", ["executions:read"])
    assert ask(wire, old.token).status == 200
    with Kernel(path, clock=clock) as other:
        new = other.rotate_key(old.id)
        assert ask(wire, new.token).status == 200
        assert ask(wire, old.token).status == 401
        other.revoke_key(old.id)
    assert ask(wire, new.token).status == 401


@pytest.fixture(params=["in process", "over HTTP"])
def operator(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[rebuno.Client | Kernel]:
    """The same methods of both."""
    with Service(tmp_path) as service:
        yield service.kernel if request.param == "in process" else service.client


def test_the_methods_of_both_kernels(operator: rebuno.Client | Kernel) -> None:
    """Creating shows the token, listing never; scopes come back sorted, each once; what is revoked
    stays listed."""
    made = operator.create_key("  ci ", ["executions:write", "agents:read", "agents:read"])
    assert re.fullmatch(rf"rbk_{made.id}\.[\w-]{{43}}", made.token)
    assert (made.name, made.scopes) == ("ci", ["agents:read", "executions:write"])
    assert made.token not in repr(made)
    rotated = operator.rotate_key(made.id)
    assert rotated.token not in ("", made.token)
    assert (rotated.id, rotated.created_at) == (made.id, made.created_at)
    operator.revoke_key(made.id)
    operator.revoke_key(made.id)
    [listed] = operator.list_keys()
    assert listed.token == ""
    assert listed.revoked_at is not None
    with pytest.raises(ConflictError, match="revoked"):
        operator.rotate_key(made.id)


@pytest.mark.parametrize(
    ("name", "scopes"),
    [
        ("", ["agents:read"]),
        (" ", ["agents:read"]),
        ("x" * 201, ["agents:read"]),
        ("k", []),
        ("k", ["agents:own"]),
        ("k", ["AGENTS:READ"]),
    ],
)
def test_a_key_that_cannot_be(
    operator: rebuno.Client | Kernel, name: str, scopes: list[str]
) -> None:
    with pytest.raises(ValidationError):
        operator.create_key(name, scopes)
    assert operator.list_keys() == []


def test_a_key_that_is_unknown(operator: rebuno.Client | Kernel) -> None:
    with pytest.raises(NotFoundError):
        operator.rotate_key(NOBODY)
    with pytest.raises(NotFoundError):
        operator.revoke_key(NOBODY)


def test_a_client_with_a_key(tmp_path: Path) -> None:
    """It does what the key is for, and is told what it is not for."""
    with Service(tmp_path) as service:
        service.client.register_agent("a", "http://nowhere.test/", "s")
        key = service.client.create_key("reader", [Scope.AGENTS_READ])
        with rebuno.Client(service.url, key.token) as client:
            assert [agent.id for agent in client.agents()] == ["a"]
            with pytest.raises(ForbiddenError, match="executions:write"):
                client.create("a")


# -- secrets


def test_a_stolen_file_hands_out_no_token(kernel: Kernel, path: Path) -> None:
    """Neither the file nor its log has a token's secret part, and nobody but the owner may read
    them."""
    token = kernel.create_key("k", list(Scope)).token
    secret = token.partition(".")[2].encode()
    files = [file for file in path.parent.iterdir() if file.name.startswith(path.name)]
    assert path in files
    for file in files:
        assert secret not in file.read_bytes()
        assert file.stat().st_mode & 0o077 == 0


def test_secrets_of_agents_are_shown_to_nobody(wire: Wire, kernel: Kernel) -> None:
    """Not in listings, answers or texts of objects."""
    kernel.register_agent("hidden", webhook_url="http://x", secret="s3cr3t-of-hidden")
    shown = [
        wire.operate("GET", "/v0/agents").body,
        wire.operate("GET", "/v0/agents/hidden").body,
        repr(kernel.get_agent("hidden")).encode(),
        repr(kernel.core.agents.get("hidden")).encode(),
    ]
    assert not any(b"s3cr3t" in text for text in shown)


def test_an_agents_requests_are_for_its_own_executions(
    wire: Wire, kernel: Kernel, inbox: Inbox
) -> None:
    """An execution of another agent is forbidden, one that is not there is not found."""
    lease = start(kernel, inbox)
    other = f"/v0/executions/{lease.execution_id}"
    assert wire.act("GET", other, agent=AGENT).status == 200
    assert wire.act("GET", other, agent="other").status == 403
    assert wire.act("GET", f"/v0/executions/{NOBODY}", agent="other").status == 404
