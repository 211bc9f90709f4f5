"""The async SDKs' clients as operators of our kernel."""

from __future__ import annotations

import pytest

from .features import shows
from .operators import Refused
from .sites import AGENT, SECRET, Site

pytestmark = pytest.mark.slow

NOBODY = "01900000-0000-7000-8000-000000000000"


def refusal(site: Site, method: str, *args: object, **keywords: object) -> Refused:
    with pytest.raises(Refused) as refused:
        site.operator.ask(method, *args, **keywords)
    return refused.value


@shows("executions")
def test_an_async_client_creates_and_reads(site: Site) -> None:
    """What it reads is what ours reads: the execution, its log in pages, its steps."""
    created = site.operator.ask("create", AGENT, {"act": "use", "given": {"target": "read"}})
    assert (created["agent_id"], created["status"]) == (AGENT, "running")
    execution_id = created["id"]
    output = site.end(execution_id)
    ended = site.operator.ask("get", execution_id)
    assert (ended["status"], ended["output"]) == ("completed", output)
    read = [it["type"] for it in site.operator.ask("events", execution_id)]
    assert "execution.completed" in read
    events = [event.type for event in site.client.events(execution_id)]
    assert read == events[: len(read)]  # The answer to a webhook may be told of later.
    page = site.operator.ask("events", execution_id, after_seq=2, limit=2)
    assert [(it["event_seq"], it["type"]) for it in page] == [(3, events[2]), (4, events[3])]
    [step] = site.operator.ask("list_steps", execution_id, status="terminal")
    assert (step["target"], step["status"], step["args"]) == ("read", "succeeded", {"text": "x"})
    assert site.operator.ask("get_step", execution_id, step["step_id"]) == step


@shows("executions", "cancelled attempts")
def test_an_async_client_cancels(site: Site) -> None:
    """Once; what it reads of an execution without steps is an empty list."""
    site.client.register_agent("idle", "", SECRET)
    waiting = site.operator.ask("create", "idle")["id"]
    assert site.operator.ask("list_steps", waiting) == []
    site.operator.ask("cancel", waiting)
    ended = site.operator.ask("get", waiting)
    assert (ended["status"], ended["failure_reason"]) == ("cancelled", "client_cancelled")
    again = refusal(site, "cancel", waiting)
    assert (again.name, again.status) == ("ConflictError", 409)


@shows("executions")
def test_refusals_are_what_an_async_client_knows(site: Site) -> None:
    """Each is of the class that it has for it."""
    nobody, unknown = refusal(site, "get", NOBODY), refusal(site, "create", "nobody's agent")
    assert (nobody.name, nobody.code) == ("NotFoundError", "not_found")
    assert (unknown.name, unknown.status) == ("NotFoundError", 404)
    malformed = refusal(site, "get", "no id")
    assert (malformed.name, malformed.code) == ("ValidationError", "validation_error")


@shows("API keys")
def test_an_async_client_with_an_api_key(site: Site) -> None:
    """It may do what its scopes say, until the key is rotated or revoked."""
    key = site.client.create_key("a peer's", ["executions:read", "approvals:read"])
    execution_id = site.begin("say", words="hello")
    assert site.operator.ask("get", execution_id, token=key.token)["id"] == execution_id
    site.operator.ask("list_approvals", token=key.token)
    for method, args in (("create", [AGENT]), ("cancel", [execution_id])):
        lacking = refusal(site, method, *args, token=key.token)
        assert (lacking.name, lacking.code) == ("ForbiddenError", "forbidden")
    rotated = site.client.rotate_key(key.id)
    assert refusal(site, "get", execution_id, token=key.token).name == "UnauthorizedError"
    assert site.operator.ask("get", execution_id, token=rotated.token)["id"] == execution_id
    site.client.revoke_key(key.id)
    revoked = refusal(site, "get", execution_id, token=rotated.token)
    assert (revoked.name, revoked.status) == ("UnauthorizedError", 401)
    assert refusal(site, "get", execution_id, token="wrong").status == 401
    site.end(execution_id)


@shows("idempotency keys")
def test_an_async_client_creates_under_a_key(site: Site) -> None:
    """The second finds what the first created, which has ended, whatever it asks for."""
    input = {"act": "say", "given": {"words": 1}}
    first = site.operator.ask("create", AGENT, input, idempotency_key="one")
    site.end(first["id"])
    again = site.operator.ask("create", AGENT, {"act": "linger"}, idempotency_key="one")
    assert (again["id"], again["idempotency_key"]) == (first["id"], "one")
    assert (again["input"], again["status"]) == (input, "completed")


@shows("on behalf of")
def test_an_async_client_says_for_whom(site: Site) -> None:
    """Both clients read it."""
    input = {"act": "say", "given": {"words": 1}}
    created = site.operator.ask("create", AGENT, input, on_behalf_of="ada")
    assert site.operator.ask("get", created["id"])["on_behalf_of"] == "ada"
    assert site.client.get(created["id"]).on_behalf_of == "ada"
    site.end(created["id"])


@shows("agent metadata")
def test_what_an_async_agent_says_of_itself(site: Site) -> None:
    """Its description, the schema of its handler's input, and that of its output."""
    assert site.metadata is not None
    assert site.metadata["description"] == "Acts."
    assert site.metadata["input_schema"]["required"] == ["act"]
    assert site.metadata["output_schema"] == {"type": "object"}
