"""Forks, as operators ask for them (protocol.md 9.5)."""

from __future__ import annotations

from ...types import Scope
from ..forks import Fork
from .call import Call, json_response
from .encoding import execution_json, points_json
from .request import Response

__all__ = ["fork", "fork_points"]

_FORK = frozenset({"at_seq", "session", "policy_bundle"})


def fork(call: Call) -> Response:
    fields = call.fields(_FORK)
    wanted = Fork(
        fields.integer("at_seq"),
        session=fields.text("session") or None,
        policy_bundle=fields.text("policy_bundle"),
    )
    if wanted.policy_bundle:
        call.require(frozenset({Scope.POLICIES_WRITE}))
    row, restoration = call.core.forking.fork(call.execution_id, wanted)
    return json_response(execution_json(row, restoration), 201)


def fork_points(call: Call) -> Response:
    return json_response(points_json(call.core.forking.points(call.execution_id)))
