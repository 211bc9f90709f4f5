"""Live streams: pieces of steps in, Server-Sent Events out (protocol.md 8.4)."""

from __future__ import annotations

from ...types import Delta
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
    call.core.deltas.publish_from_elsewhere(call.asked(execution_id), delta)
    return no_content()


def listen(call: Call) -> EventStream:
    return EventStream(call.core.deltas.listen(call.execution_id))
