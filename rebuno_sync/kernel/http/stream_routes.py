"""Live streams: pieces of steps in, Server-Sent Events out (protocol.md 8.4)."""

from __future__ import annotations

from ...types import Delta
from ..streams import check_length
from .call import Call, no_content
from .event_stream import EventStream
from .request import Response

__all__ = ["listen", "publish"]

_DELTA = frozenset({"seq", "data"})


def publish(call: Call) -> Response:
    execution_id, step_id = call.execution_id, call.names[1]
    fields = call.fields(_DELTA)
    delta = Delta(step_id, fields.integer("seq"), fields.text("data"))
    check_length(delta)
    asked = call.asked(execution_id, may_be_unnamed=True)
    call.core.deltas.publish_from_elsewhere(asked, delta)
    return no_content()


def listen(call: Call) -> EventStream:
    return EventStream(call.core.deltas.listen(call.execution_id))
