"""Model calls of an attempt: what a recording client asks of the context.

A call is begun, and its response recorded, by code that cannot see where the call ends: after an
answer of 503 only the provider's SDK knows whether it will ask again, and a stream that is closed
early is either wanted no further or lost with an attempt that is interrupted. So such a call stays
open, and is settled by what comes next in its thread::

    begin ──> in flight ── record, fail (final) ──────────────────> succeeded, failed
                  └─────── record, fail (not final) ──> ended
    ended, failed ── the same call again, no primitive between ───> in flight
    ended ── another primitive, or the end of the body or handler > succeeded, failed
    ended ── the attempt is given up ─────────────────────────────> the next attempt calls again
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn, TypeVar

from .bodies import Bodies
from .codec import encode_plain_arguments
from .errors import LeaseSuperseded, PolicyError, RateLimited, Signal
from .frames import Frame
from .heartbeat import Lease
from .nested import keep, until_over
from .open_calls import NOBODY, OpenCall, as_final, unmarked
from .outcomes import leaves_the_step
from .recording import Recording
from .strict import compact
from .types import DecisionKind, Proposal, StepDecision, StepKind

__all__ = ["ModelCallSeams"]

R = TypeVar("R")

_LEFT_OPEN = '{"message":"the body that began this model call ended before it was recorded"}'


class ModelCallSeams(ABC):
    """The part of an ``ExecutionContext`` that recording clients use."""

    recording: Recording
    bodies: Bodies
    _lease: Lease

    def __init__(self) -> None:
        self._calls_guard = threading.Lock()
        self._open_calls: dict[str, OpenCall] = {}
        self._last_calls: dict[int, OpenCall] = {}

    def begin_llm(
        self,
        model: str,
        body: Mapping[str, object],
        *,
        retry: bool | None = None,
        where: str = "",
    ) -> StepDecision:
        """Submit a call of a model, before it is made; a step of kind ``llm_call``.

        ``body``: the request as JSON, all that is its identity. ``retry``: whether the client says
        that it asks again after a failure; ``None`` if it does not say, then the identical call
        to the same place (``where``, such as its address) with no primitive between is one. A retry
        goes on with the open step.

        The decision is ``proceed``, to be followed by ``record_llm`` or ``fail_llm``, or
        ``replay`` with what is recorded. Raises ``PolicyError`` or ``RateLimited`` when the call
        is refused, ``TypeError`` naming the path for what is not JSON, or a signal.
        """
        frame = self._current_frame()
        proposal = Proposal(StepKind.LLM_CALL, model, encode_plain_arguments(body), canonical=True)
        with ExitStack() as flight:
            flight.enter_context(self.bodies.one_more())
            flight.enter_context(self._lease.moves.waiting())
            asked = OpenCall(proposal, frame, where)
            call = self._last_calls.get(threading.get_ident())
            if call is not None and call.is_asked_again(asked, retry):
                self.check()
                if call.refusal is not None:
                    raise call.refusal
                if call.answer is not None:
                    return call.answer
                call.failure, call.continues = None, False
            else:
                if call is not None and call.is_like(asked):
                    call.followed = True
                call = asked
                try:
                    decision = self._propose(proposal, frame)
                except (PolicyError, RateLimited) as refusal:
                    call.refusal = refusal
                    self._last_calls[call.thread] = call
                    raise
                call.step_id = decision.step_id
                if decision.decision == DecisionKind.REPLAY:
                    if decision.error_json is not None:
                        decision, final = unmarked(decision)
                        if not final:
                            call.answer = decision
                            self._last_calls[call.thread] = call
                    return decision
                with self._calls_guard:
                    self._open_calls[call.step_id] = call
                self._last_calls[call.thread] = call
            if not self._lease.holds():
                self._stop(LeaseSuperseded("the lease ran out before the call was made"))
            call.flight = flight.pop_all()
        return StepDecision(DecisionKind.PROCEED, call.step_id)

    def record_llm(
        self, step_id: str, response: Mapping[str, object], *, final: bool = True
    ) -> StepDecision:
        """Record the response of a model call, as JSON (protocol.md 13.9: ``status``, ``headers``,
        ``body``). ``replay`` carries what is recorded in its place.

        ``final``: ``False`` for a stream that was closed early. It is then recorded by the next
        primitive of its thread or at the end of the body that made the call, unless the attempt
        is given up before.
        """
        text = compact(response, "response")
        if final:
            return self._settle_call(step_id, result=text)
        call = self._open_call(step_id)
        call.result = text
        return self._settle_later(call)

    def fail_llm(
        self,
        step_id: str,
        error: Mapping[str, object],
        *,
        final: bool = True,
        continues: bool = False,
    ) -> None:
        """Record that a model call failed, as JSON with a ``message``.

        ``final``: ``False`` where the client may ask again. The step then stays open for the same
        call from the same thread, and is recorded as failed by the next primitive of that thread
        or at the end of the body that made the call. ``continues``: the next request belongs to it
        even if the client does not call it a retry.
        """
        text = compact(error, "error")
        if final:
            self._settle_call(step_id, failure=as_final(text))
            return
        call = self._open_call(step_id)
        call.continues = continues
        call.failure = text
        self._settle_later(call)

    def close_llm_with(self, step_id: str, close: Callable[[], None]) -> None:
        """``close`` is called at the end of the body or handler that began a call, in its thread,
        if nothing has been recorded for it by then: a stream that nobody reads to its end."""
        self._open_call(step_id).close = close

    @property
    def in_effect(self) -> bool:
        """Whether the calling thread runs the body of an effect, not just the handler."""
        frame = self._current_frame()
        return frame is not None and frame.step_id != ""

    # -- pieces of a stream, while it arrives

    @property
    def takes_deltas(self) -> bool:
        """Whether anybody can see what ``publish_delta`` publishes."""
        return self.recording.takes_deltas

    def publish_delta(self, step_id: str, seq: int, data: str) -> None:
        """Publish a piece of a response that arrives (protocol.md 8.4); it is not recorded."""
        self.recording.publish(step_id, seq, data)

    # -- where calls end

    def _settle_later(self, call: OpenCall) -> StepDecision:
        """What comes next settles it; in a thread that outlived the body, nothing does."""
        if call.frame is not None and call.frame.ended and not self.cancelled:
            return self._settle_call(call.step_id, result=call.result, failure=call.failure)
        call.flight.close()
        return StepDecision(DecisionKind.RECORDED)

    def _settle_call(
        self, step_id: str, *, result: str | None = None, failure: str | None = None
    ) -> StepDecision:
        call = self._open_call(step_id)
        with self._calls_guard:
            self._open_calls.pop(step_id, None)
        if self._last_calls.get(call.thread) is call:
            self._last_calls.pop(call.thread, None)
        with call.flight, until_over(call.frame, step_id):
            self.stay_home()
            decision = self.heard(
                lambda: self.recording.outcome(step_id, result or "null", failure)
            )
            self.check()
            keep(call.frame, step_id, result, failure or decision.error_json)
        if decision.decision == DecisionKind.REPLAY and decision.error_json is not None:
            # Recorded as a failure in its place; a client that asks again for it gets it again.
            call.answer = decision
            self._last_calls[call.thread] = call
        return decision

    def _open_call(self, step_id: str) -> OpenCall:
        call = self._open_calls.get(step_id)
        if call is None:
            raise ValueError(f"no model call with the step id {step_id!r} is open")
        return call

    def _close_ended_calls(self) -> None:
        """Another primitive of this thread begins: what ended here is not retried any more."""
        if not self._last_calls and not self._open_calls:
            return
        self._last_calls.pop(threading.get_ident(), None)
        for call in self._calls_of_this_thread():
            self._record_ended(call)

    @contextmanager
    def carried(self) -> Iterator[None]:
        """What a thread is carried for. It asks for nothing again when that is over, whatever else
        the thread does then; streams that it leaves open are anybody's to read."""
        try:
            yield
        except Exception:
            self._leave_calls(record=True)
            raise
        except BaseException:
            self._leave_calls(record=False)
            raise
        self._leave_calls(record=True)

    def _leave_calls(self, *, record: bool) -> None:
        self._last_calls.pop(threading.get_ident(), None)
        for call in self._calls_of_this_thread():
            call.thread = NOBODY
            if record and not self.cancelled:
                self._record_ended(call)

    def _calls_of_this_thread(self) -> list[OpenCall]:
        thread = threading.get_ident()
        if not self._open_calls:
            return []
        with self._calls_guard:
            return [call for call in self._open_calls.values() if call.thread == thread]

    @contextmanager
    def _closing_calls(self, frame: Frame[Any]) -> Iterator[None]:
        """A body or handler; the calls that it left open end with it.

        Where the attempt ends too, their steps stay open: a later attempt makes them again.
        """
        try:
            yield
        except BaseException as error:
            if not leaves_the_step(error):
                self._close_calls(frame)
                raise
            self._close_streams(frame)
            for call in self._calls_of(frame):
                if call.is_left_to_this_thread:
                    call.flight.close()  # Nobody waits for it.
            raise
        self._close_calls(frame)

    def _close_calls(self, frame: Frame[Any]) -> None:
        frame.ended = True  # What ends later, in another thread, is settled there.
        self._close_streams(frame)
        if self.cancelled:
            return
        for call in self._calls_of(frame):
            if call.failure is call.result is None and call.is_left_to_this_thread:
                call.failure = _LEFT_OPEN
            self._record_ended(call)

    def _close_streams(self, frame: Frame[Any]) -> None:
        for call in self._calls_of(frame):
            is_read = call.failure is call.result is None
            if is_read and call.close is not None and call.is_left_to_this_thread:
                call.close()

    def _calls_of(self, frame: Frame[Any]) -> list[OpenCall]:
        if not self._open_calls:
            return []
        with self._calls_guard:
            return [call for call in self._open_calls.values() if call.frame is frame]

    def _record_ended(self, call: OpenCall) -> None:
        if call.failure is not None or call.result is not None:
            failure = call.failure
            if failure is not None and call.followed:
                failure = as_final(failure)
            self._settle_call(call.step_id, result=call.result, failure=failure)

    # -- what the context gives

    @property
    @abstractmethod
    def cancelled(self) -> bool: ...

    @abstractmethod
    def check(self) -> None: ...

    @abstractmethod
    def _current_frame(self) -> Frame[Any] | None: ...

    @abstractmethod
    def _propose(self, proposal: Proposal, outer: Frame[Any] | None) -> StepDecision: ...

    @abstractmethod
    def heard(self, ask: Callable[[], R]) -> R: ...

    @abstractmethod
    def _stop(self, signal: Signal) -> NoReturn: ...

    @abstractmethod
    def stay_home(self) -> None: ...
