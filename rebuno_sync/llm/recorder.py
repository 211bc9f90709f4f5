"""``Recorder``: decides which requests are model calls, and has them recorded or replayed.

It knows nothing of an HTTP library: an adapter tells it what is ``Asked`` and gives it a ``Wire``.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit

from ..context import ExecutionContext, current
from ..errors import NoActiveExecution, PolicyError, RateLimited
from ..failures import decode_failure
from ..refusals import refusal_response
from ..types import DecisionKind, StepDecision
from .calls import ModelCall
from .envelopes import is_stream, reply_of
from .streams import Replayed
from .wire import Asked, Reply, Wire, is_json

__all__ = ["RANDOMISED", "Recorder", "busy"]

RANDOMISED = frozenset({"prompt_cache_key"})
"""Members of request bodies that frameworks fill with something new each time."""

_MODEL_IN_PATH = re.compile(r"/(?:models?|deployments)/([^/:?]+)[:/]")
_here = threading.local()


def busy() -> bool:
    """Whether this thread is inside a recorded request: what it sends now is that very one."""
    return getattr(_here, "busy", False)


@contextmanager
def _inside() -> Iterator[None]:
    _here.busy = True
    try:
        yield
    finally:
        _here.busy = False


_OTHERWISE = (
    " Nothing was sent. Call the model in a handler; or, if this client is to work elsewhere too,"
    ' unrecorded there, make it with outside="passthrough".'
)


class Recorder:
    """What is a model call, and what happens outside an execution.

    ``what``: names the client in errors. ``outside``: ``"raise"`` (``NoActiveExecution``) or
    ``"passthrough"``. ``ignore``: members of the request body that are no part of a call's
    identity. ``hosts``: only requests to these hosts and those below them, or to all.
    ``only_models``: only requests that name a model, in the body or the path.
    """

    def __init__(
        self,
        what: str,
        *,
        outside: str = "raise",
        ignore: Collection[str] = RANDOMISED,
        hosts: Collection[str] | None = None,
        only_models: bool = False,
    ) -> None:
        if outside not in ("raise", "passthrough"):
            raise ValueError(f"outside must be 'raise' or 'passthrough', not {outside!r}")
        for name, texts in (("ignore", ignore), ("hosts", hosts)):
            if isinstance(texts, str):
                raise TypeError(f"{name} must be a collection of names: [{texts!r}]")
        self._what = what
        self._raises = outside == "raise"
        self._ignore = frozenset(ignore)
        self._hosts = None if hosts is None else [host.lower() for host in hosts]
        self._only_models = only_models

    def exchange(self, asked: Asked, wire: Wire) -> Reply | None:
        """Make the call or replay it; ``None`` for a request that is not recorded.

        Raises as the library does, ``NoActiveExecution``, or a signal.
        """
        body = self._body_of(asked)
        if body is None:
            return None
        model = _model_of(asked.url, body)
        if self._only_models and not model:
            return None
        context = self._context()
        if context is None:
            return None
        identity = {key: body[key] for key in body.keys() - self._ignore}
        try:
            decision = context.begin_llm(model, identity, retry=asked.retry, where=asked.url)
        except (PolicyError, RateLimited) as refusal:
            return _refused(refusal, wire)
        if decision.decision == DecisionKind.REPLAY:
            return _replayed(decision, model, wire)
        streams = body.get("stream") is True
        with _inside():
            return ModelCall(context, decision.step_id, wire, streams=streams).perform()

    def expect_execution(self, asked: Asked) -> None:
        """Raise ``NoActiveExecution`` if ``exchange`` would: now, before an SDK's retries begin."""
        try:
            self._context()
        except NoActiveExecution:
            if self._body_of(asked) is not None:
                raise

    def _context(self) -> ExecutionContext | None:
        try:
            return current(self._what, _OTHERWISE)
        except NoActiveExecution:
            if self._raises:
                raise
            return None

    def _body_of(self, asked: Asked) -> dict[str, Any] | None:
        if busy() or not asked.body or not is_json(asked.content_type):
            return None
        if not self._is_chosen(asked.url):
            return None
        try:
            body = json.loads(asked.body)
        except ValueError:
            return None
        return body if isinstance(body, dict) else None

    def _is_chosen(self, url: str) -> bool:
        if self._hosts is None:
            return True
        asked = urlsplit(url).hostname or ""
        return any(asked == host or asked.endswith("." + host) for host in self._hosts)


def _model_of(url: str, body: dict[str, Any]) -> str:
    """The body's model; providers that have none there (Gemini, Bedrock) name it in the path."""
    if model := body.get("model"):
        return str(model)
    found = _MODEL_IN_PATH.search(urlsplit(url).path)
    return unquote(found.group(1)) if found else ""


def _refused(refusal: PolicyError | RateLimited, wire: Wire) -> Reply:
    status, message, body = refusal_response(refusal)
    headers = {"content-type": "application/json", "x-should-retry": "false"}
    return wire.refusal(message, Reply(status, headers, body.encode()))


def _replayed(decision: StepDecision, model: str, wire: Wire) -> Reply:
    if decision.error_json is None or decision.error_json == "null":
        return _streamed(reply_of(decision.result))
    failure = decision.error
    if not isinstance(failure, dict):
        _raise_recorded(decision, model)
    recorded, kind = failure.get("response"), failure.get("type")
    error = wire.error(kind, str(failure.get("message", ""))) if kind else None
    if recorded is None:
        if error is None:
            _raise_recorded(decision, model)
        raise error
    reply = reply_of(recorded)
    if error is not None:  # It broke in the middle of the stream.
        assert isinstance(reply.body, bytes)
        return reply._replace(body=Replayed(reply.body, error))
    # It was asked again as often as the client wanted when it was recorded.
    return reply._replace(headers={**reply.headers, "x-should-retry": "false"})


def _streamed(reply: Reply) -> Reply:
    if is_stream(reply.headers) and isinstance(reply.body, bytes):
        return reply._replace(body=Replayed(reply.body))
    return reply


def _raise_recorded(decision: StepDecision, model: str) -> NoReturn:
    """A failure that says nothing of a response: another SDK's, or the kernel's own."""
    raise decode_failure(decision.error_json, model, decision.step_id)
