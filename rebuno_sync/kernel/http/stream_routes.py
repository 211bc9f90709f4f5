"""Live streams: pieces of steps in, Server-Sent Events out (protocol.md 8.4)."""

from __future__ import annotations

from ...types import Delta, LeaseKey
from ..operations import Asked
from .call import Call, no_content
from .decoding import bad_request
from .event_stream import EventStream
from .request import Response

__all__ = ["listen", "publish"]

_LONGEST_DELTA_BYTES = 7000

_DELTA = frozenset({"seq", "data"})


def publish(call: Call) -> Response:
    execution_id, step_id = call.execution_id, call.names[1]
    fields = call.fields(_DELTA)
    delta = Delta(step_id, fields.integer("seq"), fields.text("data"))
    if len(delta.data.encode()) > _LONGEST_DELTA_BYTES:
        raise bad_request(f"data has more than {_LONGEST_DELTA_BYTES} bytes")
    if _has_no_lease(call):
        asked = Asked(LeaseKey(execution_id, "", 0), call.principal)
        call.core.deltas.publish_from_elsewhere(asked, delta, fenced=False)
    else:
        call.core.deltas.publish_from_elsewhere(call.asked(execution_id), delta)
    return no_content()


def _has_no_lease(call: Call) -> bool:
    """Whether the agent is of a generation that names no lease here (protocol.md 2.2).

    It is told by its signature: what signs in the newer form must name one.
    """
    names = "REBUNO_DISPATCH_ID", "REBUNO_DISPATCH_ATTEMPT"
    return call.request.signs_body_alone and not any(map(call.request.header, names))


def listen(call: Call) -> EventStream:
    return EventStream(call.core.deltas.listen(call.execution_id))
