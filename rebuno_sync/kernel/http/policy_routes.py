"""Policies and approvals, as operators ask for them (protocol.md 2.3)."""

from __future__ import annotations

from datetime import datetime

from ..policies import Past
from ..policy import TrialCase
from .call import Call, json_response, no_content
from .decoding import Fields, bad_request, elements_of, members_of, uuid_text
from .encoding import approval_json, list_json, report_json
from .request import Response

__all__ = [
    "deny_approval",
    "get_approval",
    "grant_approval",
    "list_approvals",
    "set_policy",
    "test_policy",
]

_POLICY = frozenset({"bundle"})
_TEST = frozenset({"bundle", "cases", "execution_id", "executions"})
_CASE = frozenset({"name", "agent_id", "kind", "target", "args", "expect", "expect_rule"})
_PAST = frozenset({"session", "since", "limit"})
_DECISION = frozenset({"decided_by", "rationale"})


def set_policy(call: Call) -> Response:
    bundle = call.fields(_POLICY).text("bundle")
    call.core.policies.set(call.names[0], bundle)
    return no_content()


def test_policy(call: Call) -> Response:
    fields = call.fields(_TEST)
    execution_id = fields.text("execution_id")
    if execution_id and uuid_text(execution_id) is None:
        raise bad_request("execution_id must be a UUID")
    past = fields.raw("executions") or "null"
    report = call.core.policies.test(
        call.names[0],
        fields.text("bundle"),
        cases=[_case(text) for text in elements_of(fields.raw("cases") or "null")],
        execution_id=uuid_text(execution_id) or "",
        past=None if past == "null" else _past(members_of(past, _PAST)),
    )
    return json_response(report_json(report))


def _case(text: str) -> TrialCase:
    fields = members_of(text, _CASE)
    named = {name: fields.text(name) for name in _CASE - {"args", "kind"}}
    args = fields.raw("args") or "null"
    return TrialCase(kind=fields.text("kind") or "tool_call", args=args, **named)


def _past(fields: Fields) -> Past:
    limit, session = fields.integer("limit"), fields.text("session")
    since = fields.text("since")
    if not since:
        return Past(limit=limit, session=session)
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise bad_request(f"since must be a time like 2026-01-31T12:00:00Z, not {since!r}")
    return Past(round(moment.timestamp() * 1_000_000), limit, session)


# -- approvals


def list_approvals(call: Call) -> Response:
    rows = call.core.records.approvals(call.request.query("status") or "pending")
    return json_response(list_json(map(approval_json, rows)))


def get_approval(call: Call) -> Response:
    return json_response(approval_json(call.core.records.approval(_approval_id(call))))


def grant_approval(call: Call) -> Response:
    return _decide(call, granted=True)


def deny_approval(call: Call) -> Response:
    return _decide(call, granted=False)


def _decide(call: Call, *, granted: bool) -> Response:
    approval_id, fields = _approval_id(call), call.fields(_DECISION)
    call.core.records.decide(
        approval_id, fields.text("decided_by"), fields.text("rationale"), granted=granted
    )
    return no_content()


def _approval_id(call: Call) -> str:
    found = uuid_text(call.names[0])
    if found is None:
        raise bad_request("the path names no approval: its id must be a UUID")
    return found
