"""Policies and approvals on the wire (protocol.md 2.3, 3.5, 11.10)."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel import Kernel

from .moves import Inbox, start, submit
from .wire import AGENT, OTHER, Wire

NOBODY = str(uuid.UUID(int=7))
POLICIES = f"/v0/policies/{AGENT}"
ASK = """
default_action: allow
rules:
  - id: ask
    when: {target: t}
    then: {decision: require_approval, approval_config: {approvers: [alice], message: "t?"}}
"""


def asked(wire: Wire, kernel: Kernel, inbox: Inbox) -> tuple[Any, dict[str, Any]]:
    """The lease that asked for an approval, and the decision's JSON."""
    assert wire.operate("POST", POLICIES, {"bundle": ASK}).status == 204
    lease = start(kernel, inbox)
    return lease, submit(wire, lease).json


def past(**filters: object) -> dict[str, object]:
    """A test of past executions."""
    return {"bundle": ASK, "executions": filters}


def test_a_policy_is_set_and_shown(wire: Wire) -> None:
    """The agent's JSON has it, until an empty text removes it."""
    assert wire.operate("POST", POLICIES, {"bundle": ASK}).status == 204
    assert wire.operate("GET", f"/v0/agents/{AGENT}").json["policy_bundle"] == ASK
    assert wire.operate("POST", POLICIES, {"bundle": ""}).status == 204
    assert "policy_bundle" not in wire.operate("GET", f"/v0/agents/{AGENT}").json


@pytest.mark.parametrize(
    ("target", "body", "status", "code"),
    [
        (POLICIES, {"bundle": "rules: 5"}, 400, "validation_error"),
        (POLICIES, {"bundle": ["rules"]}, 400, "validation_error"),
        (POLICIES, {"bundel": ""}, 400, "validation_error"),
        (POLICIES, b"", 400, "validation_error"),
        ("/v0/policies/nobody", {"bundle": ""}, 404, "not_found"),
        ("/v0/policies/nobody/test", {"cases": []}, 404, "not_found"),
        (POLICIES + "/test", {"cases": []}, 400, "validation_error"),
        (POLICIES + "/test", {"bundle": "rules: 5"}, 400, "validation_error"),
        (POLICIES + "/test", {"bundle": ASK, "cases": [{}]}, 400, "validation_error"),
        (POLICIES + "/test", {"bundle": ASK, "cases": [5]}, 400, "validation_error"),
        (POLICIES + "/test", {"bundle": ASK, "cases": {}}, 400, "validation_error"),
        (POLICIES + "/test", {"bundle": ASK, "cases": [{"tool": "t"}]}, 400, "validation_error"),
        (POLICIES + "/test", {"bundle": ASK, "execution_id": "x"}, 400, "validation_error"),
        (POLICIES + "/test", {"bundle": ASK, "execution_id": NOBODY}, 404, "not_found"),
        (POLICIES + "/test", past(since="x"), 400, "validation_error"),
        (POLICIES + "/test", past(since="2026-01-31T12:00:00"), 400, "validation_error"),
        (POLICIES + "/test", past(session=5), 400, "validation_error"),
        (f"/v0/approvals/{NOBODY}/grant", {"decided_by": "a"}, 404, "not_found"),
        ("/v0/approvals/x/grant", {"decided_by": "a"}, 400, "validation_error"),
        (f"/v0/approvals/{NOBODY}/deny", {"by": "a"}, 400, "validation_error"),
        (f"/v0/approvals/{NOBODY}/deny", b"", 400, "validation_error"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused(
    wire: Wire, target: str, body: object, status: int, code: str
) -> None:
    """By the table of errors."""
    answer = wire.operate("POST", target, body)
    assert (answer.status, answer.code) == (status, code), answer.body


def test_a_refused_bundle_names_its_line(wire: Wire) -> None:
    """In the protocol's words."""
    answer = wire.operate("POST", POLICIES, {"bundle": "rules:\n  - id: a\n    priority: 1\n"})
    begins = "load policy bundle: validation error: invalid policy bundle: line 3: "
    assert answer.json["message"].startswith(begins)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", POLICIES),
        ("POST", POLICIES + "/test"),
        ("GET", "/v0/approvals"),
        ("GET", f"/v0/approvals/{NOBODY}"),
        ("POST", f"/v0/approvals/{NOBODY}/grant"),
        ("POST", f"/v0/approvals/{NOBODY}/deny"),
    ],
)
def test_only_operators_may(wire: Wire, method: str, target: str) -> None:
    """Neither strangers nor agents decide what agents may do."""
    assert wire.send(method, target, b"{}").status == 401
    assert wire.act(method, target, b"{}").status == 401


def test_an_approval_has_the_protocols_members(wire: Wire, kernel: Kernel, inbox: Inbox) -> None:
    """And what the step is to do; before and after it is decided."""
    lease, decision = asked(wire, kernel, inbox)
    assert decision == {
        "decision": "blocked",
        "step_id": decision["step_id"],
        "approval_id": decision["approval_id"],
        "rule_id": "ask",
    }
    path = f"/v0/approvals/{decision['approval_id']}"
    shown = wire.operate("GET", path).json
    assert wire.operate("GET", "/v0/approvals?status=pending").json == [shown]
    times = {name: shown.pop(name) for name in ("created_at", "timeout_at")}
    assert times["created_at"] < times["timeout_at"]
    assert shown == {
        "id": decision["approval_id"],
        "step_id": decision["step_id"],
        "execution_id": lease.execution_id,
        "status": "pending",
        "agent_id": AGENT,
        "kind": "tool_call",
        "target": "t",
        "args": None,
        "approvers": ["alice"],
        "message": "t?",
    }
    refused = wire.operate("POST", path + "/grant", {"decided_by": "bob"})
    assert (refused.status, refused.code) == (403, "forbidden")
    assert wire.operate("POST", path + "/grant", {"decided_by": "alice"}).status == 204
    shown = wire.operate("GET", path).json
    assert (shown["status"], shown["decided_by"]) == ("granted", "alice")
    assert "decided_at" in shown
    assert wire.operate("GET", "/v0/approvals").json == []
    again = wire.operate("POST", path + "/deny", {"decided_by": "alice"})
    assert (again.status, again.code) == (409, "conflict")
    assert "already granted by 'alice' at 2026-" in again.json["message"]


def test_an_approval_for_anybody_has_no_list_of_approvers(
    wire: Wire, kernel: Kernel, inbox: Inbox
) -> None:
    """It is null, as the protocol has it."""
    bundle = "rules: [{id: a, then: {decision: require_approval}}]"
    wire.operate("POST", POLICIES, {"bundle": bundle})
    submit(wire, start(kernel, inbox))
    (shown,) = wire.operate("GET", "/v0/approvals").json
    assert shown["approvers"] is None
    assert wire.operate("POST", f"/v0/approvals/{shown['id']}/deny", b"null").status == 204


def test_a_blocked_submit_may_be_repeated_under_its_request_id(
    wire: Wire, kernel: Kernel, inbox: Inbox
) -> None:
    """The lease is gone by then; the answer is that of the first time."""
    wire.operate("POST", POLICIES, {"bundle": ASK})
    lease = start(kernel, inbox)
    request_id = {"Rebuno-Request-Id": str(uuid.uuid4())}
    first = submit(wire, lease, more=request_id)
    assert first.json["decision"] == "blocked"
    assert submit(wire, lease, more=request_id).body == first.body
    assert len(wire.operate("GET", "/v0/approvals").json) == 1


@pytest.mark.parametrize("max_wait", ["0s", "2h"])
def test_a_limited_submit_may_be_repeated_under_its_request_id(
    wire: Wire, kernel: Kernel, inbox: Inbox, max_wait: str
) -> None:
    """Refused or parked, it is counted once."""
    limit = f"{{max_calls: 1, window: 1h, max_wait: {max_wait}}}"
    bundle = f"rules: [{{id: a, then: {{decision: allow, rate_limit: {limit}}}}}]"
    wire.operate("POST", POLICIES, {"bundle": bundle})
    lease = start(kernel, inbox)
    submit(wire, lease)
    request_id = {"Rebuno-Request-Id": str(uuid.uuid4())}
    first = submit(wire, lease, more=request_id)
    assert first.json == {
        "decision": "rate_limited" if max_wait == "0s" else "blocked",
        "reason": "rate_limit_exceeded",
    }
    assert submit(wire, lease, more=request_id).body == first.body
    told = [event.type for event in kernel.events(lease.execution_id)]
    assert told.count("step.rate_limited") == 1


def test_a_granted_execution_is_delivered_again(wire: Wire, kernel: Kernel, inbox: Inbox) -> None:
    """At once, under a dispatch of its own."""
    lease, decision = asked(wire, kernel, inbox)
    assert inbox.round() == []
    wire.operate("POST", f"/v0/approvals/{decision['approval_id']}/grant", {"decided_by": "alice"})
    (webhook,) = inbox.round()
    assert webhook.lease.dispatch_id != lease.dispatch_id
    assert submit(wire, webhook.lease).json == {
        "decision": "proceed",
        "step_id": decision["step_id"],
    }


def test_a_timeout_is_the_next_thing_that_the_dispatcher_waits_for(
    wire: Wire, kernel: Kernel, inbox: Inbox, clock: ManualClock
) -> None:
    """It does not look only when something is to be delivered."""
    bundle = ASK.replace("{approvers: [alice]", "{timeout: 100ms, approvers: [alice]")
    wire.operate("POST", POLICIES, {"bundle": bundle})
    lease = start(kernel, inbox)
    submit(wire, lease)
    assert inbox.seconds_to_next() == pytest.approx(0.1)
    clock.advance(0.1)
    assert [webhook.lease.execution_id for webhook in inbox.round()] == [lease.execution_id]


def test_a_policy_test_gives_its_cases_back_with_what_was_said(wire: Wire) -> None:
    """Arguments as they were sent."""
    body = json.dumps({"bundle": ASK}).encode()[:-1]
    cases = b'"cases": [{"target": "t", "args": {"n": 1e2, "n": 1.50}, "expect": "deny"}]'
    answer = wire.operate("POST", POLICIES + "/test", body + b", " + cases + b"}")
    assert b'"args":{"n": 1e2, "n": 1.50}' in answer.body
    assert answer.json == {
        "results": [
            {
                "target": "t",
                "kind": "tool_call",
                "args": {"n": 1.5},
                "expect": "deny",
                "decision": "require_approval",
                "rule_id": "ask",
                "pass": False,
                "failure": "require_approval, want deny",
            }
        ],
        "failed": 1,
    }


def test_a_policy_test_of_past_executions(wire: Wire, kernel: Kernel, inbox: Inbox) -> None:
    """Of that agent alone."""
    asked(wire, kernel, inbox)
    kernel.set_policy(OTHER, ASK)
    body = {"executions": {"since": "2025-12-31T00:00:00Z", "limit": 5}}
    (result,) = wire.operate("POST", POLICIES + "/test", body).json["results"]
    assert (result["expect"], result["was_rule"], result["pass"]) == (
        "require_approval",
        "ask",
        True,
    )
    assert wire.operate("POST", f"/v0/policies/{OTHER}/test", body).json["results"] == []
    later = {"executions": {"since": "2027-01-01T00:00:00Z"}}
    assert wire.operate("POST", POLICIES + "/test", later).json["results"] == []
