"""What operators ask (protocol.md 2.1, 2.3)."""

from __future__ import annotations

from ...errors import ForbiddenError
from ...types import Scope
from ..executions import Wanted
from ..records import spawner_in
from .call import Call, json_response, no_content
from .decoding import bad_request, uuid_text
from .encoding import agent_json, event_json, execution_json, list_json, page_json
from .metrics import CONTENT_TYPE
from .request import Response

__all__ = [
    "cancel",
    "create",
    "delete_agent",
    "events",
    "get_agent",
    "get_execution",
    "health",
    "list_agents",
    "list_executions",
    "metrics",
    "openapi",
    "ready",
    "register_agent",
]

_CREATE_UNBUILT = ("agent_version", "concurrency_key")
_CREATE_TEXTS = ("idempotency_key", "session", "parent_execution_id", "on_behalf_of")
_CREATE = frozenset({"agent_id", "input", "spawned_by", *_CREATE_TEXTS, *_CREATE_UNBUILT})
_REGISTER = frozenset({"id", "webhook_url", "secret", "lease_timeout_seconds", "signature"})


# -- executions


def create(call: Call) -> Response:
    fields = call.fields(_CREATE)
    fields.refuse(*_CREATE_UNBUILT)
    key, session, parent, on_behalf_of = (
        fields.optional_text(name) or None for name in _CREATE_TEXTS
    )
    spawner = spawner_in(fields.members("spawned_by"))
    if spawner is not None:
        spawner = (_uuid("spawned_by.execution_id", spawner[0]), spawner[1])
    wanted = Wanted(
        fields.text("agent_id"),
        fields.raw("input") or "null",
        key=key,
        session=session,
        parent=None if parent is None else _uuid("parent_execution_id", parent),
        spawner=spawner,
        on_behalf_of=on_behalf_of,
    )
    return json_response(execution_json(call.core.records.create(wanted)), 201)


def _uuid(name: str, text: str) -> str:
    found = uuid_text(text)
    if found is None:
        raise bad_request(f"{name} is no UUID")
    return found


def list_executions(call: Call) -> Response:
    request = call.request
    limit = request.integer("limit") if request.query("limit") else 0
    if limit is None:
        raise bad_request("limit must be a whole number")
    rows, more = call.core.records.page(
        request.query("agent_id"),
        request.query("status"),
        limit,
        request.query("cursor"),
        request.query("session"),
    )
    return json_response(page_json(rows, more))


def get_execution(call: Call) -> Response:
    return json_response(execution_json(call.core.records.get(call.execution_id, call.principal)))


def events(call: Call) -> Response:
    execution_id = call.execution_id
    after_seq = call.request.integer("after_seq") or 0
    limit = call.request.integer("limit") or 0
    rows = call.core.records.events(execution_id, after_seq, limit)
    return json_response(list_json(event_json(execution_id, row) for row in rows))


def cancel(call: Call) -> Response:
    call.core.records.cancel(call.execution_id)
    return no_content()


# -- agents


def register_agent(call: Call) -> Response:
    fields = call.fields(_REGISTER)
    try:
        call.require(frozenset({Scope.POLICIES_WRITE}))
    except ForbiddenError:
        policy = None  # Who may not set a policy does not take one away either.
    else:
        policy = ""
    row = call.core.agents.register(
        fields.text("id"),
        webhook_url=fields.text("webhook_url"),
        secret=fields.text("secret"),
        lease_timeout_seconds=fields.number("lease_timeout_seconds"),
        signature=fields.optional_text("signature"),
        policy=policy,
    )
    return json_response(agent_json(row), 201)


def list_agents(call: Call) -> Response:
    return json_response(list_json(map(agent_json, call.core.agents.all())))


def get_agent(call: Call) -> Response:
    return json_response(agent_json(call.core.agents.get(call.names[0])))


def delete_agent(call: Call) -> Response:
    call.core.agents.delete(call.names[0])
    return no_content()


# -- the kernel itself


def health(call: Call) -> Response:
    return json_response('{"status":"ok"}')


def metrics(call: Call) -> Response:
    return Response(200, call.metrics.text(), CONTENT_TYPE)


def openapi(call: Call) -> Response:
    return Response(200, call.document())


def ready(call: Call) -> Response:
    """Whether the file can be read."""
    try:
        call.core.agents.all()
    except Exception:  # whatever it is, it is not ready
        return json_response('{"status":"unavailable"}', 503)
    return json_response('{"status":"ready"}')
