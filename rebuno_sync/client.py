"""``Client``: what operators and other programs ask of a kernel, over HTTP (protocol.md 2.1)."""

from __future__ import annotations

import builtins
import json
import logging
import os
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

import requests
from urllib3.exceptions import NewConnectionError

from .access import Access
from .branching import Branching
from .clock import SYSTEM
from .closing import Closing
from .codec import PLAIN
from .combined import Combined
from .endings import PAGE, ended, still_open
from .errors import APIError, NetworkError, api_error
from .governance import Governance
from .listening import SILENT_SECONDS, LiveStream
from .ports import Clock
from .replies import error_of, no_such_key, understood
from .types import Event, Execution, ExecutionPage, Step

__all__ = ["Client"]

_log = logging.getLogger(__name__)

_TRIES = 6
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_POLL_FIRST, _POLL_LONGEST = 0.02, 0.5
_MATTER = ("idempotency_key", "session", "parent_execution_id")
"""Texts of a creation that change what is done."""


class Client(Governance, Access, Branching, Combined, Closing):
    """A kernel's operator interface. Usable from many threads, and after a fork.

    ``base_url``: the kernel's, by default ``REBUNO_URL``. ``api_key``: its bearer token or an API
    key, by default ``REBUNO_API_KEY``; none is sent when it is empty. ``timeout``: seconds for
    each answer.

    What is safe to repeat is repeated a few times when the kernel cannot be reached: whatever only
    reads, a ``create`` with an idempotency key, and anything that was refused before it was sent.

    Methods raise ``NetworkError`` when the kernel cannot be reached or its answer is lost,
    ``APIError`` (``NotFoundError``, ``ConflictError`` ...) when it answers with an error.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 35.0,
        clock: Clock = SYSTEM,
    ) -> None:
        self.base_url = (base_url or os.environ.get("REBUNO_URL") or "").rstrip("/")
        if not self.base_url:
            raise ValueError("a client needs base_url: give base_url=... or set REBUNO_URL")
        if not self.base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url must begin with http:// or https://, not {base_url!r}")
        self._api_key = os.environ.get("REBUNO_API_KEY", "") if api_key is None else api_key
        self._timeout = timeout
        self._clock = clock
        self._closed = False
        self._forget_sessions()
        _clients.add(self)

    # -- executions

    def create(
        self,
        agent_id: str,
        input: object = None,
        *,
        idempotency_key: str | None = None,
        session: str | None = None,
        parent_execution_id: str | None = None,
        spawned_by: Mapping[str, str] | None = None,
        on_behalf_of: str | None = None,
    ) -> Execution:
        """Create an execution, or find the one that has the idempotency key already, whatever its
        input: compare that where a key might be used for two things.

        ``input``: any JSON value. The other arguments are those of ``Kernel.create``, sent when
        given; what a kernel does not know it refuses (``ValidationError``), and so is an empty
        text here, which kernels take for none. Raises ``TypeError`` for an input that is not JSON.
        """
        members = {
            "agent_id": json.dumps(agent_id),
            "input": None if input is None else PLAIN.encode(input, "input"),
        }
        given = {
            "idempotency_key": idempotency_key,
            "session": session,
            "parent_execution_id": parent_execution_id,
            "spawned_by": None if spawned_by is None else dict(spawned_by),
            "on_behalf_of": on_behalf_of,
        }
        for name, value in given.items():
            if value == "" and name in _MATTER:
                raise _empty(name)
            if value:
                members[name] = json.dumps(value)
        body = ",".join(f'"{name}":{text}' for name, text in members.items() if text is not None)
        # A subagent's key is the id of its step, unless it has one (protocol.md 9.1).
        repeatable = bool(idempotency_key or spawned_by)
        answer = self._ask("POST", "/v0/executions", "{" + body + "}", repeatable=repeatable)
        return understood("an execution", lambda: Execution.model_validate(answer))

    def get(self, execution_id: str) -> Execution:
        """One execution."""
        answer = self._ask("GET", _path(execution_id))
        return understood("an execution", lambda: Execution.model_validate(answer))

    def list(
        self,
        *,
        agent_id: str = "",
        status: str = "",
        limit: int = 50,
        cursor: str = "",
        session: str = "",
    ) -> ExecutionPage:
        """A page of executions, newest first (protocol.md 2.1.2). ``status``: an
        ``ExecutionStatus``; another word finds none. ``limit``: at most 200; 0 is 50."""
        query = {"agent_id": agent_id, "status": status, "limit": limit, "cursor": cursor}
        query |= {"session": session} if session else {}
        answer = self._ask("GET", "/v0/executions", query=query)
        return understood(
            "a page of executions",
            lambda: ExecutionPage.model_validate(
                {**answer, "executions": answer.get("executions") or []}
            ),
        )

    def events(
        self, execution_id: str, after_seq: int = 0, limit: int = 100
    ) -> builtins.list[Event]:
        """Entries of an execution's log after ``after_seq``, at most 1000."""
        query = {"after_seq": after_seq, "limit": limit}
        answer = self._ask("GET", _path(execution_id) + "/events", query=query)
        return understood("events", lambda: [Event.model_validate(it) for it in answer or ()])

    def cancel(self, execution_id: str) -> None:
        """End an execution; ``ConflictError`` when it has ended already."""
        self._ask("POST", _path(execution_id) + "/cancel")

    def list_steps(self, execution_id: str, status: str = "") -> builtins.list[Step]:
        """An execution's steps by id; ``status="terminal"`` leaves out the open ones."""
        answer = self._ask("GET", _path(execution_id) + "/steps", query={"status": status})
        return understood("steps", lambda: [Step.model_validate(it) for it in answer or ()])

    def get_step(self, execution_id: str, step_id: str) -> Step:
        """One step."""
        answer = self._ask("GET", f"{_path(execution_id)}/steps/{quote(step_id, safe='')}")
        return understood("a step", lambda: Step.model_validate(answer))

    def previous(self, execution_id: str) -> object:
        """What the execution before that one left to it (protocol.md 9.3); ``None`` if nothing."""
        answer = self._ask("GET", _path(execution_id) + "/previous")
        return understood("a state", lambda: answer["state"])

    def stream(self, execution_id: str) -> LiveStream:
        """What running steps of an execution receive, a model's words say, as it comes.

        Listens from the call on: what came before, or faster than it is taken, is missing (the
        recorded results are whole). Iterate over it; it ends some seconds after the execution has
        ended, or when it is closed.
        """
        reply = self._open("GET", _path(execution_id) + "/stream", timeout=SILENT_SECONDS)
        return LiveStream(reply, lambda: self.get(execution_id).status.terminal)

    def wait(self, execution_id: str, timeout: float | None = None) -> Execution:
        """Wait until the execution has completed and return it.

        ``timeout``: seconds, after which ``TimeoutError`` is raised and the execution goes on; it
        says so where no agent could be given the execution. A kernel that has answered once may be
        away for a while: a restart of it does not end the wait. Raises ``ExecutionFailed`` or
        ``ExecutionCancelled`` when it ended in that way.
        """
        started = self._clock.monotonic()
        execution = self.get(execution_id)
        pause = _POLL_FIRST
        away = False
        while True:
            if execution.status.terminal:
                return ended(execution)
            waited = self._clock.monotonic() - started
            if timeout is not None and waited >= timeout:
                raise still_open(
                    execution, timeout, lambda seen: self.events(execution_id, seen, PAGE)
                )
            self._pause(pause if timeout is None else min(pause, timeout - waited))
            pause = min(pause * 1.5, _POLL_LONGEST)
            try:
                execution = self.get(execution_id)
                away = False
            except NetworkError as error:
                if not away:
                    _log.warning("still waiting for execution %s: %s", execution_id, error)
                away = True

    # -- requests

    def _ask(
        self,
        method: str,
        path: str,
        body: str | None = None,
        *,
        query: dict[str, Any] | None = None,
        repeatable: bool | None = None,
    ) -> Any:
        """One answer; asks again after a while where that can do nothing twice."""
        if repeatable is None:
            repeatable = method == "GET"
        pause = _FIRST_PAUSE
        for left in reversed(range(_TRIES)):
            try:
                return self._exchange(method, path, body, query)
            except NetworkError as error:
                error.repeatable = error.repeatable or repeatable
                if not (left and error.repeatable):
                    raise
            self._pause(pause * (0.75 + self._clock.random() / 2))
            pause = min(pause * 2, _LONGEST_PAUSE)
        raise AssertionError("unreachable")

    def _pause(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def _exchange(
        self, method: str, path: str, body: str | None, query: dict[str, Any] | None
    ) -> Any:
        reply = self._open(method, path, body, query)
        if not reply.content.strip():
            return None
        return understood("JSON", lambda: json.loads(reply.content))

    def _open(
        self,
        method: str,
        path: str,
        body: str | None = None,
        query: dict[str, Any] | None = None,
        *,
        timeout: float = 0,
    ) -> requests.Response:
        """The reply to one request. ``timeout``: given, its body is left to be read, with so many
        seconds for each wait."""
        what = f"{method} {path}"
        headers = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            reply = self._session().request(
                method,
                self.base_url + path,
                data=None if body is None else body.encode(),
                params={name: value for name, value in (query or {}).items() if value},
                headers=headers,
                timeout=timeout or self._timeout,
                stream=bool(timeout),
                allow_redirects=False,
            )
        except requests.RequestException as error:
            if _not_sent(error):
                raise NetworkError(
                    f"cannot connect to {self.base_url} for {what}: {_cause(error)}. Is a kernel"
                    " running there (rebuno-sync kernel)? Another address: base_url or REBUNO_URL",
                    repeatable=True,
                ) from error
            raise NetworkError(f"no answer of {self.base_url} to {what}: {error}") from error
        if reply.status_code >= 300:
            told = no_such_key(self.base_url, self._api_key)
            raise error_of(reply.status_code, reply.content, what, unauthorized=told)
        return reply

    def _session(self) -> requests.Session:
        if self._closed:
            raise ValueError(f"this Client({self.base_url!r}) is closed")
        session: requests.Session | None = getattr(self._mine, "session", None)
        if session is None:
            session = self._mine.session = requests.Session()
            session.auth = _keep_headers  # Else a .netrc would replace the bearer token.
            with self._guard:
                self._sessions.add(session)
        return session

    def _forget_sessions(self) -> None:
        """A session for each thread: they share nothing. Also after a fork."""
        self._guard = threading.Lock()
        self._mine = threading.local()
        self._sessions: WeakSet[requests.Session] = WeakSet()

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._closed = True
        with self._guard:
            sessions = list(self._sessions)
        for session in sessions:
            session.close()


def _path(execution_id: str) -> str:
    if not isinstance(execution_id, str):
        raise TypeError(f"an execution's id is a text, not {execution_id!r:.80}; give execution.id")
    return f"/v0/executions/{quote(execution_id, safe='')}"


def _empty(name: str) -> APIError:
    """A variable that was not set, most likely: an execution without a key would begin anew."""
    told = f"{name} must not be empty; leave it out for none"
    return api_error("validation_error", f"validation error: {told}", 400)


def _keep_headers(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _not_sent(error: requests.RequestException) -> bool:
    """Whether the kernel cannot have seen the request."""
    if isinstance(error, requests.ConnectTimeout):
        return True
    cause = error.args[0] if error.args else None
    return isinstance(getattr(cause, "reason", cause), NewConnectionError)


def _cause(error: BaseException) -> str:
    """What the operating system said, below the words of the libraries in between."""
    reason: object = error.args[0] if error.args else error
    reason = getattr(reason, "reason", reason)
    below = reason.__cause__ if isinstance(reason, BaseException) else None
    return str(below or reason)


_clients: WeakSet[Client] = WeakSet()


def _forget_inherited() -> None:
    """A forked child shares the parent's connections, and must not speak on them."""
    for client in list(_clients):
        client._forget_sessions()


os.register_at_fork(after_in_child=_forget_inherited)
