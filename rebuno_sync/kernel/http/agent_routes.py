"""What agents ask (protocol.md 2.2, and the extensions of 17)."""

from __future__ import annotations

import json

from ...errors import APIError, api_error
from ...types import LARGEST_BATCH, ExecutionStatus, Idempotency, LeaseKey, Proposal, Wake
from ..moment import Moment
from ..operations import Answer, Beat, End, Operation, Release, Settle, Submit, Suspend, Try
from ..store.earlier import started
from ..unfenced import OF_ALL_GENERATIONS
from .call import Call, failed, json_response, no_content
from .decoding import Fields, bad_request, elements_of, members_of, uuid_text
from .encoding import decision_json, error_json, list_json, step_json
from .request import Response
from .resource_routes import captures_in

__all__ = [
    "attempt",
    "batch",
    "complete",
    "complete_step",
    "fail",
    "fail_step",
    "get_step",
    "heartbeat",
    "list_steps",
    "previous",
    "put_metadata",
    "release",
    "renew_many",
    "submit",
    "suspend",
]

_MOST_TRIES = 2**31
_LONGEST_BACK_OFF_SECONDS = 1e9

_SUBMIT = frozenset({"kind", "target", "args", "idempotency", "resources"})
_COMPLETE_STEP = frozenset({"result", "captures", "capture_failures"})
_FAIL_STEP = frozenset({"error", "captures", "capture_failures"})
_ATTEMPT = frozenset({"attempt", "error", "retry_in"})
_COMPLETE = frozenset({"output", "state"})
_FAIL = frozenset({"error"})
_SUSPEND = frozenset({"step_id", "seconds", "besides"})
_BATCH = frozenset({"operations"})
_OPERATION = frozenset({"op", "step_id"}) | _SUBMIT | _COMPLETE_STEP | _FAIL_STEP | _COMPLETE
_LEASES = frozenset({"leases"})
_LEASE = frozenset({"execution_id", "dispatch_id", "dispatch_attempt"})
_METADATA = frozenset({"description", "input_schema", "output_schema"})


def list_steps(call: Call) -> Response:
    execution_id = call.execution_id
    rows = call.core.records.steps(execution_id, call.request.query("status"), call.principal)
    # Not of the protocol: a resumed attempt asks what there is, which may hold megabytes.
    values = call.request.query("values") != "none"
    if not values:
        now = Moment.of(call.core.clock)
        rows = [it._replace(started_at=started(it, now.wall, now.boottime)) for it in rows]
    return json_response(list_json(step_json(execution_id, row, values=values) for row in rows))


def get_step(call: Call) -> Response:
    execution_id = call.execution_id
    row = call.core.records.step(execution_id, call.names[1], call.principal)
    return json_response(step_json(execution_id, row))


def previous(call: Call) -> Response:
    state = call.core.records.left_behind(call.execution_id, call.principal)
    return json_response(f'{{"state":{state}}}')


# -- one operation


def submit(call: Call) -> Response:
    return _one(call, call.execution_id, _submit(call.fields(_SUBMIT)))


def complete_step(call: Call) -> Response:
    return _one(call, call.execution_id, _complete_step(call.fields(_COMPLETE_STEP), call.names[1]))


def fail_step(call: Call) -> Response:
    return _one(call, call.execution_id, _fail_step(call.fields(_FAIL_STEP), call.names[1]))


def attempt(call: Call) -> Response:
    fields = call.fields(_ATTEMPT)
    number, retry_in = fields.integer("attempt"), fields.number("retry_in")
    if not 0 < number < _MOST_TRIES:
        raise bad_request("attempt must be a whole number from 1")
    if not 0 <= retry_in <= _LONGEST_BACK_OFF_SECONDS:
        raise bad_request(f"retry_in must be 0 to {_LONGEST_BACK_OFF_SECONDS:.0f} seconds")
    return _one(call, call.execution_id, Try(call.names[1], number, fields.raw("error"), retry_in))


def complete(call: Call) -> Response:
    return _one(call, call.execution_id, _complete(call.fields(_COMPLETE)))


def fail(call: Call) -> Response:
    return _one(call, call.execution_id, _fail(call.fields(_FAIL)))


def heartbeat(call: Call) -> Response:
    return _one(call, call.execution_id, Beat())


def release(call: Call) -> Response:
    interrupted = call.request.query("interrupted") == "1"
    strike = call.request.query("strike") != "0"
    operation = Release(interrupted, strike, call.core.clock.random())
    return _one(call, call.execution_id, operation)


def suspend(call: Call) -> Response:
    wake: Wake | None = None
    if call.request.body.strip():
        fields = call.fields(_SUSPEND)
        if step_id := fields.text("step_id"):
            besides = _texts("besides", fields.array("besides"))
            wake = Wake(step_id, fields.number("seconds"), besides)
    return _one(call, call.execution_id, Suspend(wake))


def _one(call: Call, execution_id: str, operation: Operation) -> Response:
    asked = call.asked(execution_id, may_be_unnamed=isinstance(operation, OF_ALL_GENERATIONS))
    (answer,) = call.core.remote.perform(asked, (operation,))
    if answer.error is not None:
        return failed(answer.error)
    if answer.suspended is not None:
        return json_response(json.dumps({"suspended": answer.suspended}))
    if answer.decision is None:
        return no_content()
    return json_response(decision_json(answer.decision))


def _submit(fields: Fields) -> Submit:
    return Submit.of(
        Proposal(
            fields.text("kind"),
            fields.text("target"),
            fields.raw("args") or "null",
            fields.text("idempotency") or Idempotency.SAFE_TO_RETRY,
            resources=_texts("resources", fields.array("resources")),
        )
    )


def _texts(name: str, listed: list[object]) -> tuple[str, ...]:
    texts = tuple(text for text in listed if isinstance(text, str))
    if len(texts) != len(listed):
        raise bad_request(f"{name} must be texts")
    return texts


def _complete_step(fields: Fields, step_id: str) -> Settle:
    return Settle.with_result(step_id, fields.raw("result"), captures_in(fields))


def _fail_step(fields: Fields, step_id: str) -> Settle:
    return Settle(step_id, error=fields.raw("error") or "null", told=captures_in(fields))


def _complete(fields: Fields) -> End:
    return End(ExecutionStatus.COMPLETED, output=fields.raw("output"), state=fields.raw("state"))


def _fail(fields: Fields) -> End:
    return End(ExecutionStatus.FAILED, reason=fields.text("error"))


# -- several at once


def batch(call: Call) -> Response:
    execution_id = call.execution_id
    texts = elements_of(call.fields(_BATCH).raw("operations") or "[]")
    if not 0 < len(texts) <= LARGEST_BATCH:
        raise bad_request(f"operations must be 1 to {LARGEST_BATCH}, not {len(texts)}")
    operations = [_operation(members_of(text, _OPERATION)) for text in texts]
    answers = call.core.remote.perform(call.asked(execution_id), operations)
    return json_response(f'{{"results":{list_json(map(_result, answers))}}}')


def _operation(fields: Fields) -> Operation:
    op, step_id = fields.text("op"), fields.text("step_id")
    if op == "submit":
        return _submit(fields)
    if op == "complete_step":
        return _complete_step(fields, step_id)
    if op == "fail_step":
        return _fail_step(fields, step_id)
    if op == "complete":
        return _complete(fields)
    if op == "fail":
        return _fail(fields)
    raise bad_request(f"op must be submit, complete_step, fail_step, complete or fail, not {op!r}")


def _result(answer: Answer) -> str:
    body = "null"
    if answer.error is not None:
        body = error_json(answer.error)
    elif answer.decision is not None:
        body = decision_json(answer.decision)
    return f'{{"status":{answer.status},"body":{body}}}'


def renew_many(call: Call) -> Response:
    listed = call.fields(_LEASES).array("leases")
    leases = [_lease(item) for item in listed]
    superseded = call.core.remote.renew(call.principal, leases, wants_notice=call.wants_notice)
    return json_response(json.dumps({"superseded": superseded}))


def _lease(item: object) -> LeaseKey:
    if isinstance(item, dict) and item.keys() - {"runner"} == _LEASE:
        execution_id, dispatch_id, runner = (
            uuid_text(value) if isinstance(value := item.get(name), str) else None
            for name in ("execution_id", "dispatch_id", "runner")
        )
        attempt = item["dispatch_attempt"]
        counts = type(attempt) is int and 0 < attempt < 2**31
        if execution_id and dispatch_id and counts and (runner or "runner" not in item):
            return LeaseKey(execution_id, dispatch_id, attempt, runner or "")
    raise bad_request(
        "a lease is an execution_id, a dispatch_id, a positive dispatch_attempt and perhaps a"
        " runner, which is a UUID"
    )


# -- besides executions


def put_metadata(call: Call) -> Response:
    if call.names[0] != call.principal:
        raise _forbidden(call.names[0])
    fields = call.fields(_METADATA)
    fields.text("description")
    members = [f'"{name}":{fields.raw(name) or "null"}' for name in sorted(_METADATA)]
    call.core.agents.put_metadata(call.principal, "{" + ",".join(members) + "}")
    return no_content()


def _forbidden(agent_id: str) -> APIError:
    return api_error("forbidden", f"forbidden: you are not agent {agent_id!r}", 403)
