"""Resources and their checkpoints, as agents ask for them (protocol.md 9.6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...types import Capture, CaptureFailure, Registration
from ..operations import Operation
from ..resource_operations import Bind, Checkpoint, Register
from ..resources import Captures, check_binding
from .call import Call, failed, json_response, no_content
from .decoding import Fields, bad_request
from .encoding import view_json
from .request import Response

__all__ = ["bind", "captures_in", "checkpoint", "register"]

_REGISTER = frozenset(
    {"key", "driver_id", "configuration", "coverage_reuse", "every_steps", "on_completion"}
)
_BIND = frozenset({"binding"})
_CHECKPOINT = frozenset({"captures", "capture_failures"})


def register(call: Call) -> Response:
    fields = call.fields(_REGISTER)
    wanted = Registration(
        fields.text("key"),
        fields.text("driver_id"),
        fields.raw("configuration"),
        bool(fields.flag("coverage_reuse")),
        fields.integer("every_steps"),
        fields.flag("on_completion"),
    )
    return _one(call, Register(wanted))


def bind(call: Call) -> Response:
    binding = check_binding(call.fields(_BIND).raw("binding"))
    return _one(call, Bind(call.names[1], binding))


def checkpoint(call: Call) -> Response:
    return _one(call, Checkpoint(captures_in(call.fields(_CHECKPOINT))))


def _one(call: Call, operation: Operation) -> Response:
    (answer,) = call.core.remote.perform(call.asked(call.execution_id), (operation,))
    if answer.error is not None:
        return failed(answer.error)
    return no_content() if answer.view is None else json_response(view_json(answer.view))


def captures_in(fields: Fields) -> Captures:
    """What a request says was captured, and what could not be."""
    return Captures(
        [Capture(key, it, ref) for key, it, ref in _told(fields, "captures", "checkpoint_ref")],
        [
            CaptureFailure(key, it, error)
            for key, it, error in _told(fields, "capture_failures", "error")
        ],
    )


def _told(fields: Fields, member: str, what: str) -> Iterator[tuple[str, int, str]]:
    for item in fields.array(member):
        known = {"key", "generation", what}
        if not isinstance(item, dict) or not item.keys() <= known:
            raise bad_request(f"{member} are objects with {', '.join(sorted(known))}")
        yield _typed(item, "key", ""), _typed(item, "generation", 0), _typed(item, what, "")


def _typed(item: dict[str, Any], name: str, nothing: Any) -> Any:
    value = item.get(name)
    if value is None:
        return nothing
    if type(value) is not type(nothing):
        raise bad_request(f"{name} has the wrong type")
    return value
