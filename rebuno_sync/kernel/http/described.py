"""What each route takes and answers, in the words of JSON Schema. A test holds it against the
table of routes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = ["DESCRIBED", "SCHEMAS", "Described"]

Schema = dict[str, Any]

_JSON = "application/json; charset=utf-8"

_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "number"}
_INTEGER: Schema = {"type": "integer"}
_ANY: Schema = {}


class Described(NamedTuple):
    summary: str
    answer: Schema | None = None
    """Of the body of a success; ``None`` when it has none."""
    status: int = 200
    body: Schema | None = None
    body_required: bool = True
    query: Mapping[str, str] = MappingProxyType({})
    """Parameters and their types."""
    lease: bool = False
    """Whether it needs the headers of a lease (protocol.md 5.4)."""
    content_type: str = _JSON


def _object(required: tuple[str, ...] = (), /, **members: Schema) -> Schema:
    return {
        "type": "object",
        "properties": members,
        "required": list(required),
        "additionalProperties": False,
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _status(*words: str) -> Schema:
    return {"type": "object", "properties": {"status": {"enum": list(words)}}}


_STEP_BODY = {
    "kind": _TEXT,
    "target": _TEXT,
    "args": _ANY,
    "idempotency": {"enum": ["safe_to_retry", "at_most_once"]},
    "resources": _list(_TEXT),
}
_CAPTURED = {
    "captures": _list(
        _object(("key", "checkpoint_ref"), key=_TEXT, generation=_INTEGER, checkpoint_ref=_TEXT)
    ),
    "capture_failures": _list(
        _object(("key", "error"), key=_TEXT, generation=_INTEGER, error=_TEXT)
    ),
}
_LEASE = _object(
    ("execution_id", "dispatch_id", "dispatch_attempt"),
    execution_id=_TEXT,
    dispatch_id=_TEXT,
    dispatch_attempt=_INTEGER,
)
_OPERATION = _object(
    ("op",),
    op={"enum": ["submit", "complete_step", "fail_step", "complete", "fail"]},
    step_id=_TEXT,
    result=_ANY,
    error=_ANY,
    output=_ANY,
    state=_ANY,
    **_STEP_BODY,
    **_CAPTURED,
)
_NEW_EXECUTION = _object(
    ("agent_id",),
    agent_id=_TEXT,
    input=_ANY,
    idempotency_key=_TEXT,
    session=_TEXT,
    parent_execution_id=_TEXT,
    spawned_by=_object(("execution_id", "step_id"), execution_id=_TEXT, step_id=_TEXT),
    on_behalf_of=_TEXT,
)
_RESOURCE = _object(
    ("key", "driver_id"),
    key=_TEXT,
    driver_id=_TEXT,
    configuration=_ANY,
    coverage_reuse={"type": "boolean"},
    every_steps=_INTEGER,
    on_completion={"type": ["boolean", "null"]},
)
_AGENT = _object(
    ("id",),
    id=_TEXT,
    webhook_url=_TEXT,
    secret=_TEXT,
    lease_timeout_seconds=_NUMBER,
    signature={"enum": ["v1", "body"]},
)
_METADATA = _object(
    description={"type": ["string", "null"]},
    input_schema={"type": ["object", "null"]},
    output_schema={"type": ["object", "null"]},
)
_DECISION_OF_A_PERSON = _object(decided_by=_TEXT, rationale=_TEXT)

SCHEMAS: dict[str, Schema] = {
    "Error": {
        "type": "object",
        "properties": {"code": _TEXT, "message": _TEXT, "details": _TEXT},
        "required": ["code", "message"],
    },
    "Decision": {
        "type": "object",
        "properties": {
            "decision": _TEXT,
            "step_id": _TEXT,
            "result": _ANY,
            "error": _ANY,
            "approval_id": _TEXT,
            "reason": _TEXT,
            "rule_id": _TEXT,
        },
        "required": ["decision"],
    },
}

_EXECUTION, _EXECUTIONS = "/v0/executions/{id}", "/v0/executions"
_STEP = "/v0/executions/{id}/steps/{step}"
_KEYS = "/v0/api-keys"

DESCRIBED: dict[str, Described] = {
    f"POST {_EXECUTIONS}": Described(
        "Create an execution, or find the one that has the idempotency key.",
        _ref("Execution"),
        201,
        _NEW_EXECUTION,
    ),
    f"GET {_EXECUTIONS}": Described(
        "A page of executions, newest first.",
        _ref("ExecutionPage"),
        query={
            **dict.fromkeys(("agent_id", "status", "session", "cursor"), "string"),
            "limit": "integer",
        },
    ),
    f"GET {_EXECUTION}": Described("One execution.", _ref("Execution")),
    f"GET {_EXECUTION}/events": Described(
        "Its log.", _list(_ref("Event")), query={"after_seq": "integer", "limit": "integer"}
    ),
    f"GET {_EXECUTION}/stream": Described(
        "What its running steps receive, as Server-Sent Events; without an end.",
        _TEXT,
        content_type="text/event-stream",
    ),
    f"POST {_EXECUTION}/cancel": Described("End it.", status=204),
    f"POST {_EXECUTION}/fork": Described(
        "A new execution with what was settled until an event.",
        _ref("Execution"),
        201,
        _object(("at_seq",), at_seq=_INTEGER, session=_TEXT, policy_bundle=_TEXT),
    ),
    f"GET {_EXECUTION}/fork-points": Described("Where it can be forked.", _ref("ForkPoints")),
    f"GET {_EXECUTION}/previous": Described(
        "What the execution before it left.", _object(("state",), state=_ANY)
    ),
    f"GET {_EXECUTION}/steps": Described(
        "Its recorded steps, by id.", _list(_ref("Step")), query={"status": "string"}
    ),
    f"GET {_STEP}": Described("One step.", _ref("Step")),
    f"POST {_EXECUTION}/steps": Described(
        "Submit an effect.", _ref("Decision"), body=_object(**_STEP_BODY), lease=True
    ),
    f"POST {_STEP}/complete": Described(
        "Record a result.", _ref("Decision"), body=_object(result=_ANY, **_CAPTURED), lease=True
    ),
    f"POST {_STEP}/fail": Described(
        "Record an error.", _ref("Decision"), body=_object(error=_ANY, **_CAPTURED), lease=True
    ),
    f"POST {_STEP}/attempt": Described(
        "Tell of a failed try that another will follow.",
        _ref("Decision"),
        body=_object(attempt=_INTEGER, error=_ANY, retry_in=_NUMBER),
        lease=True,
    ),
    f"POST {_STEP}/stream": Described(
        "Publish a piece of what a running step receives.",
        status=204,
        body=_object(seq=_INTEGER, data=_TEXT),
        lease=True,
    ),
    f"POST {_EXECUTION}/batch": Described(
        "Several operations in one transaction.",
        _object(("results",), results=_list(_object(status=_INTEGER, body=_ANY))),
        body=_object(("operations",), operations=_list(_OPERATION)),
        lease=True,
    ),
    f"POST {_EXECUTION}/heartbeat": Described("Renew a lease.", status=204, lease=True),
    f"POST {_EXECUTION}/complete": Described(
        "End it with its output.", status=204, body=_object(output=_ANY, state=_ANY), lease=True
    ),
    f"POST {_EXECUTION}/fail": Described(
        "End it as failed.", status=204, body=_object(error=_TEXT), lease=True
    ),
    f"POST {_EXECUTION}/suspend": Described(
        "Give a lease back until something happens, or for the time of a sleep.",
        _object(("suspended",), suspended={"type": "boolean"}),
        body=_object(step_id=_TEXT, seconds=_NUMBER, besides=_list(_TEXT)),
        body_required=False,
        lease=True,
    ),
    f"POST {_EXECUTION}/resources": Described(
        "Register a resource.", _ref("ResourceView"), body=_RESOURCE, lease=True
    ),
    f"POST {_EXECUTION}/resources/checkpoints": Described(
        "Tell of captures of resources.", status=204, body=_object(**_CAPTURED), lease=True
    ),
    f"POST {_EXECUTION}/resources/{{key}}/binding": Described(
        "Say what a resource's driver opens.",
        status=204,
        body=_object(("binding",), binding=_ANY),
        lease=True,
    ),
    f"POST {_EXECUTION}/release": Described(
        "Give a lease back.", status=204, query={"interrupted": "string"}, lease=True
    ),
    "POST /v0/leases": Described(
        "Renew many leases.",
        _object(("superseded",), superseded=_list(_INTEGER)),
        body=_object(("leases",), leases=_list(_LEASE)),
    ),
    "POST /v0/agents": Described("Register an agent, or replace it.", _ref("Agent"), 201, _AGENT),
    "GET /v0/agents": Described("All agents, by id.", _list(_ref("Agent"))),
    "GET /v0/agents/{id}": Described("One agent.", _ref("Agent")),
    "DELETE /v0/agents/{id}": Described("Forget an agent.", status=204),
    "PUT /v0/agents/{id}/metadata": Described(
        "What an agent says of itself.", status=204, body=_METADATA
    ),
    "POST /v0/policies/{agent}": Described(
        "Set an agent's policy.", status=204, body=_object(("bundle",), bundle=_TEXT)
    ),
    "POST /v0/policies/{agent}/test": Described(
        "What a policy would say.",
        _ref("PolicyReport"),
        body=_object(
            bundle=_TEXT,
            cases=_list({"type": "object"}),
            execution_id=_TEXT,
            executions={"type": ["object", "null"]},
        ),
    ),
    "GET /v0/approvals": Described(
        "What waits for a person, the oldest first.",
        _list(_ref("Approval")),
        query={"status": "string"},
    ),
    "GET /v0/approvals/{id}": Described("One approval.", _ref("Approval")),
    "POST /v0/approvals/{id}/grant": Described("Grant it.", status=204, body=_DECISION_OF_A_PERSON),
    "POST /v0/approvals/{id}/deny": Described("Deny it.", status=204, body=_DECISION_OF_A_PERSON),
    f"POST {_KEYS}": Described(
        "A new API key, with its token this once.",
        _ref("ApiKey"),
        201,
        _object(("name", "scopes"), name=_TEXT, scopes=_list(_ref("Scope"))),
    ),
    f"GET {_KEYS}": Described("All API keys, without tokens.", _list(_ref("ApiKey"))),
    f"DELETE {_KEYS}/{{id}}": Described("Revoke an API key.", status=204),
    f"POST {_KEYS}/{{id}}/rotate": Described("Give an API key a new token.", _ref("ApiKey")),
    "GET /v0/health": Described("Whether the process answers.", _status("ok")),
    "GET /v0/ready": Described("Whether the file can be read.", _status("ready")),
    "GET /v0/openapi.json": Described("This description.", {"type": "object"}),
    "GET /metrics": Described(
        "What a kernel counts, for Prometheus.",
        _TEXT,
        content_type="text/plain; version=0.0.4; charset=utf-8",
    ),
}
"""By method and path of the table of routes. A route of it that this kernel has not is left out."""
