"""``ModelCall``: one request on the wire, from its step's ``proceed`` to its outcome."""

from __future__ import annotations

from ..context import ExecutionContext
from ..failures import decode_failure
from ..outcomes import leaves_the_step
from ..types import DecisionKind, StepDecision
from .deltas import Deltas
from .envelopes import envelope, is_binary, is_stream, reply_of, response_failure, stream_failure
from .sockets import Hold
from .streams import Tee
from .wire import Received, Reply, Wire

__all__ = ["ModelCall"]

_RETRYABLE = frozenset({408, 409, 429})


class ModelCall:
    """``streams``: whether the caller asked for a stream, whatever the answer's content type."""

    def __init__(
        self, context: ExecutionContext, step_id: str, wire: Wire, *, streams: bool
    ) -> None:
        self._context = context
        self._step_id = step_id
        self._wire = wire
        self._streams = streams
        self._hold = Hold()
        self._take_back = context.on_cancel(self._hold.hang_up)

    def perform(self) -> Reply:
        """Send it; a stream's outcome is recorded when it has been read."""
        try:
            self._context.check()
            with self._hold:
                received = self._wire.send({"Idempotency-Key": self._step_id})
                streamed = received.status < 400 and (self._streams or is_stream(received.headers))
                body = b"" if streamed else _read(received)
        except BaseException as error:
            # The attempt ends, or whoever catches this goes on: then it has failed.
            self._may_fail(error)
            if not leaves_the_step(error):
                self._context.check()  # It was cut short by a cancel.
            raise
        if streamed:
            return self._teed(received)
        return self._answered(received, body)

    def _answered(self, received: Received, body: bytes) -> Reply:
        self._release()
        recorded = envelope(received.status, received.headers, body)
        if 300 <= received.status < 400:
            self._context.fail_llm(
                self._step_id, response_failure(recorded), final=False, continues=True
            )
        elif received.status >= 400:
            final = not _may_be_retried(received)
            self._context.fail_llm(self._step_id, response_failure(recorded), final=final)
        else:
            self._raise_instead(self._context.record_llm(self._step_id, recorded))
        return reply_of(recorded)

    def _teed(self, received: Received) -> Reply:
        tee = Tee(
            received.chunks,
            received.close,
            self._deltas(received),
            self._hold,
            self._context.check,
        )

        def end(body: bytes, error: BaseException | None, complete: bool) -> None:
            self._release()
            recorded = envelope(received.status, received.headers, body, truncated=not complete)
            if error is None:
                decision = self._context.record_llm(self._step_id, recorded, final=complete)
                self._raise_instead(decision)
            elif leaves_the_step(error):
                self._may_fail(error)
            else:
                failure = stream_failure(error, recorded)
                self._context.fail_llm(self._step_id, failure)

        tee.on_end = end
        self._context.close_llm_with(self._step_id, tee.close)
        first = reply_of(envelope(received.status, received.headers, b""))
        return first._replace(body=tee)

    def _deltas(self, received: Received) -> Deltas | None:
        if self._context.takes_deltas and not is_binary(received.headers):
            return Deltas(self._context, self._step_id)
        return None

    def _may_fail(self, error: BaseException) -> None:
        self._release()
        self._context.fail_llm(self._step_id, stream_failure(error), final=False)

    def _release(self) -> None:
        self._take_back()
        self._hold.release()

    def _raise_instead(self, decision: StepDecision) -> None:
        """The kernel would not store the response: that is the outcome, live as on a replay."""
        if decision.decision == DecisionKind.REPLAY and decision.error_json is not None:
            raise decode_failure(decision.error_json, "", self._step_id)


def _read(received: Received) -> bytes:
    try:
        return b"".join(received.chunks)
    finally:
        received.close()


def _may_be_retried(received: Received) -> bool:
    told = received.headers.get("x-should-retry")
    if told in ("true", "false"):
        return told == "true"
    return received.status in _RETRYABLE or received.status >= 500
