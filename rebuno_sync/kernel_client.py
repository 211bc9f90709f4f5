"""``KernelClient``: what an execution asks of its kernel, over signed HTTP (protocol.md 2.2,
13.3)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from .clock import SYSTEM
from .errors import APIError, NetworkError, NotFoundError, api_error
from .messages import (
    EXTENSIONS,
    completion_body,
    creation_body,
    decision_of,
    extensions_in,
    lease_entry,
    outcome_body,
    recorded_of,
    submit_body,
)
from .ports import Clock, ResourceKernel
from .remote_clock import RemoteClock
from .replies import error_of, no_such_agent, no_such_key, understood
from .resource_calls import ResourceCalls
from .signing import sign_body, sign_request
from .transport import Reply, Transport
from .types import (
    Execution,
    LeaseKey,
    Proposal,
    Recorded,
    Renewal,
    Spawn,
    Step,
    StepDecision,
    Wake,
)

__all__ = ["Answer", "KernelClient", "NotOffered"]

_UNAUTHORIZED = 401
_LARGEST_BODY = 10 * 2**20
_HEADER_VALUE = re.compile(r"[!-~]+( +[!-~]+)*")


class Answer(NamedTuple):
    """What became of one operation of a batch."""

    status: int
    body: Any


class NotOffered(NetworkError):
    """The kernel does not have an extension, or no longer: nothing was done."""


class KernelClient:
    """An ``AgentKernel`` at a URL. Thread-safe.

    ``base_url``, ``agent_id``, ``secret``: as of ``Agent``. ``timeout``: seconds for each wait.
    ``signature``: ``"v1"`` (the request form) or ``"body"`` pins the form; without it the first
    refused request decides.
    """

    def __init__(
        self,
        base_url: str,
        agent_id: str,
        secret: str,
        *,
        timeout: float = 35.0,
        signature: str | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        if signature not in (None, "v1", "body"):
            raise ValueError(f"signature must be 'v1' or 'body', not {signature!r}")
        if not _HEADER_VALUE.fullmatch(agent_id):
            raise ValueError(f"agent_id must be printable ASCII, not {agent_id!r}")
        self.agent_id = agent_id
        self._secret = secret
        self._transport = Transport(base_url, timeout=timeout)
        self._clock = clock
        self._kernel_clock = RemoteClock(clock)
        self._request_form = signature != "body"
        self._form_is_known = signature is not None
        self._extensions: frozenset[str] = frozenset()
        self.resources: ResourceKernel = ResourceCalls(self._post)

    def learn_extensions(self, named: str) -> None:
        """What the kernel named in a webhook's ``Rebuno-Extensions``: only that is used."""
        self._extensions = extensions_in(named)

    @property
    def wants_request_ids(self) -> bool:
        """Whether a submit should carry an id, under which it may be repeated."""
        return "request-id" in self._extensions

    @property
    def renews_together(self) -> bool:
        return "leases" in self._extensions

    takes_deltas = True

    @property
    def takes_leases_back(self) -> bool:
        return "release" in self._extensions

    @property
    def keeps_tries(self) -> bool:
        return "attempts" in self._extensions

    @property
    def batches(self) -> bool:
        """Whether outcomes may travel with a later request: only where that can be repeated."""
        return "batch" in self._extensions and self.wants_request_ids

    @property
    def quickest(self) -> float:
        """Seconds that the quickest answer so far took."""
        return self._transport.quickest

    def close(self) -> None:
        """Close the idle connections."""
        self._transport.close()

    # -- ports.AgentKernel

    def get_execution(self, execution_id: str) -> Execution:
        answer = self._get(_path(execution_id))
        return understood("an execution", lambda: Execution.model_validate(answer))

    def list_steps(self, execution_id: str) -> list[Step]:
        return self._steps(_path(execution_id) + "/steps")

    def _steps(self, path: str) -> list[Step]:
        found = self._get(path) or []
        return understood("steps", lambda: [Step.model_validate(step) for step in found])

    def recorded(self, execution_id: str) -> list[Recorded]:
        # A kernel that does not know this parameter tells all, as if it were not there.
        steps = self._steps(_path(execution_id) + "/steps?values=none")
        found = [recorded_of(step) for step in steps]
        return sorted(found, key=lambda step: step.started_at or 0)

    def wall(self) -> int:
        return self._kernel_clock.wall()

    def submit(self, lease: LeaseKey, proposal: Proposal) -> StepDecision:
        path = _path(lease.execution_id) + "/steps"
        return decision_of(self._post(path, submit_body(proposal), lease, proposal.request_id))

    def complete_step(self, lease: LeaseKey, step_id: str, result: str) -> StepDecision:
        path = f"{_path(lease.execution_id)}/steps/{quote(step_id, safe='')}/complete"
        return decision_of(self._post(path, outcome_body("result", result), lease))

    def fail_step(self, lease: LeaseKey, step_id: str, error: str) -> StepDecision:
        path = f"{_path(lease.execution_id)}/steps/{quote(step_id, safe='')}/fail"
        return decision_of(self._post(path, outcome_body("error", error), lease))

    def delta(self, lease: LeaseKey, step_id: str, seq: int, data: str) -> None:
        path = f"{_path(lease.execution_id)}/steps/{quote(step_id, safe='')}/stream"
        self._post(path, json.dumps({"seq": seq, "data": data}), lease)

    def retrying(
        self, lease: LeaseKey, step_id: str, attempt: int, error: str, retry_in: float
    ) -> StepDecision:
        body = f'{{"attempt":{attempt},"error":{error},"retry_in":{json.dumps(retry_in)}}}'
        return self._post_attempt(lease, step_id, body)

    def begin_try(self, lease: LeaseKey, step_id: str, attempt: int) -> StepDecision:
        return self._post_attempt(lease, step_id, f'{{"attempt":{attempt}}}')

    def _post_attempt(self, lease: LeaseKey, step_id: str, body: str) -> StepDecision:
        path = f"{_path(lease.execution_id)}/steps/{quote(step_id, safe='')}/attempt"
        return decision_of(self._post_extension("attempts", path, body, lease))

    def renew(self, leases: Sequence[LeaseKey]) -> list[Renewal]:
        if self.renews_together and len(leases) > 1:
            return self._renew_together(leases)
        return [self._renew(lease) for lease in leases]

    def _renew(self, lease: LeaseKey) -> Renewal:
        try:
            self._post(_path(lease.execution_id) + "/heartbeat", "", lease)
            if not lease.attempt and self.get_execution(lease.execution_id).status.terminal:
                return Renewal.SUPERSEDED  # The oldest kernels accept every beat.
        except NetworkError:
            return Renewal.UNKNOWN
        except APIError as error:
            gone = error.code in ("lease_superseded", "execution_terminal")
            return Renewal.SUPERSEDED if gone or _is_not_found(error) else Renewal.UNKNOWN
        return Renewal.ACCEPTED

    def _renew_together(self, leases: Sequence[LeaseKey]) -> list[Renewal]:
        listed = [lease_entry(lease) for lease in leases]
        try:
            answer = self._post_extension("leases", "/v0/leases", json.dumps({"leases": listed}))
            gone = understood("renewals", lambda: set(answer["superseded"] or ()))
        except (NetworkError, APIError):
            return [Renewal.UNKNOWN] * len(leases)
        return [
            Renewal.SUPERSEDED if index in gone else Renewal.ACCEPTED
            for index in range(len(leases))
        ]

    def complete(self, lease: LeaseKey, output: str, state: str | None = None) -> None:
        body = completion_body(output, state)
        self._post(_path(lease.execution_id) + "/complete", body, lease)

    def fail(self, lease: LeaseKey, reason: str) -> None:
        body = outcome_body("error", json.dumps(reason))
        self._post(_path(lease.execution_id) + "/fail", body, lease)

    def release(self, lease: LeaseKey, *, interrupted: bool = False, strike: bool = True) -> None:
        if not self.takes_leases_back:
            return  # It runs out by itself.
        query = "?interrupted=1" if interrupted else ""
        query += "&strike=0" if interrupted and not strike else ""
        path = f"{_path(lease.execution_id)}/release{query}"
        self._post_extension("release", path, "", lease)

    @property
    def parks(self) -> bool:
        return "wake" in self._extensions

    def suspend(self, lease: LeaseKey, wake: Wake | None = None) -> bool:
        path = f"{_path(lease.execution_id)}/suspend"
        fields = {} if wake is None else wake._asdict()
        if "besides" not in self._extensions:
            fields.pop("besides", None)
        body = json.dumps(fields) if fields else ""
        try:
            answer = self._post(path, body, lease)
        except APIError as error:
            if error.code == APIError.code and error.status_code in (404, 405):
                return False  # Before protocol.md 9.7 nothing is parked: it is waited for.
            raise
        return understood("whether it is suspended", lambda: bool(answer["suspended"]))

    def spawn(self, lease: LeaseKey, spawn: Spawn) -> Execution:
        """Needs an API key (``REBUNO_API_KEY``) where the kernel asks operators for one."""
        body = creation_body(lease.execution_id, spawn)
        target = self._transport.target("/v0/executions")
        headers = [("Content-Type", "application/json")]
        if token := os.environ.get("REBUNO_API_KEY"):
            headers.append(("Authorization", f"Bearer {token}"))
        reply = self._transport.send("POST", target, headers, body.encode())
        told = no_such_key(self._transport.base_url, token or "")
        answer = _read(reply, f"POST {target}", told)
        return understood("an execution", lambda: Execution.model_validate(answer))

    def get_step(self, execution_id: str, step_id: str) -> Step:
        answer = self._get(f"{_path(execution_id)}/steps/{quote(step_id, safe='')}")
        return understood("a step", lambda: Step.model_validate(answer))

    def previous(self, execution_id: str) -> object:
        answer = self._get(_path(execution_id) + "/previous")
        return understood("a state", lambda: answer["state"])

    # -- beyond the port

    def batch(
        self, lease: LeaseKey, operations: Sequence[str], request_id: str = ""
    ) -> list[Answer]:
        """Send operations (JSON texts) that are applied in order until one is refused; the answers
        of those that were. ``request_id`` is that of the submit among them."""
        path = _path(lease.execution_id) + "/batch"
        body = f'{{"operations":[{",".join(operations)}]}}'
        answer = self._post_extension("batch", path, body, lease, request_id)
        return understood(
            "a batch",
            lambda: [Answer(int(it["status"]), it.get("body")) for it in answer["results"]],
        )

    def put_metadata(self, metadata: dict[str, Any]) -> None:
        """Publish what the agent is and takes (protocol.md 13.10)."""
        path = f"/v0/agents/{quote(self.agent_id, safe='')}/metadata"
        self._exchange("PUT", path, json.dumps(metadata), None, "")

    # -- requests

    def _get(self, path: str) -> Any:
        try:
            return self._exchange("GET", path, "", None, "")
        except NetworkError as error:
            error.repeatable = True
            raise

    def _post(
        self, path: str, body: str, lease: LeaseKey | None = None, request_id: str = ""
    ) -> Any:
        try:
            return self._exchange("POST", path, body, lease, request_id)
        except NetworkError as error:
            error.repeatable = error.repeatable or bool(request_id)
            raise

    def _post_extension(
        self, name: str, path: str, body: str, lease: LeaseKey | None = None, request_id: str = ""
    ) -> Any:
        """A kernel that knows no such route has never had the extension, or no longer."""
        try:
            return self._post(path, body, lease, request_id)
        except APIError as error:
            if error.code == APIError.code and error.status_code in (404, 405):
                self._extensions -= {name}
                raise NotOffered(f"the kernel has no {name!r}", repeatable=True) from error
            raise

    def _exchange(
        self, method: str, path: str, text: str, lease: LeaseKey | None, request_id: str
    ) -> Any:
        try:
            body = text.encode()
        except UnicodeEncodeError as error:  # A lone surrogate, which no kernel stores either.
            raise api_error("validation_error", f"not encodable: {error}", 400) from error
        if len(body) > _LARGEST_BODY:
            message = f"{len(body)} bytes are not sent; a kernel takes at most {_LARGEST_BODY}"
            raise api_error("validation_error", message, 413)
        target = self._transport.target(path)
        request_form, was_known = self._request_form, self._form_is_known

        def send() -> Reply:
            headers = self._headers(method, target, body, lease, request_form)
            if request_id:
                headers.append(("Rebuno-Request-Id", request_id))
            return self._transport.send(method, target, headers, body)

        reply = send()
        found_meanwhile = self._form_is_known and self._request_form == request_form
        if reply.status == _UNAUTHORIZED and not was_known and not found_meanwhile:
            # Refused before anything was done, so it may be sent again in the other form.
            request_form = not request_form
            reply = send()
        if reply.status < 300 and not self._form_is_known:
            self._request_form, self._form_is_known = request_form, True
        self._kernel_clock.hear(reply.headers.get("Date"))
        told = no_such_agent(self._transport.base_url, self.agent_id)
        return _read(reply, f"{method} {target}", told)

    def _headers(
        self, method: str, target: str, body: bytes, lease: LeaseKey | None, request_form: bool
    ) -> list[tuple[str, str]]:
        dispatch_id = lease.dispatch_id if lease else ""
        attempt = str(lease.attempt) if lease and lease.attempt else ""
        headers = [
            ("Content-Type", "application/json"),
            ("Rebuno-Agent-Id", self.agent_id),
            ("Rebuno-Extensions", _NAMED),
        ]
        if dispatch_id:
            headers.append(("Rebuno-Dispatch-Id", dispatch_id))
        if attempt:
            headers.append(("Rebuno-Dispatch-Attempt", attempt))
        if lease and lease.runner:
            headers.append(("Rebuno-Runner", lease.runner))
        if not request_form:
            headers.append(("Rebuno-Signature", sign_body(self._secret, body)))
            return headers
        timestamp = str(self._clock.wall() // 1_000_000)
        signature = sign_request(
            self._secret,
            method=method,
            target=target,
            timestamp=timestamp,
            dispatch_id=dispatch_id,
            dispatch_attempt=attempt,
            body=body,
        )
        headers += [("Rebuno-Timestamp", timestamp), ("Rebuno-Signature", signature)]
        return headers


_NAMED = ", ".join(EXTENSIONS)


def _is_not_found(error: APIError) -> bool:
    return isinstance(error, NotFoundError)


def _path(execution_id: str) -> str:
    return f"/v0/executions/{quote(execution_id, safe='')}"


def _read(reply: Reply, what: str, unauthorized: str) -> Any:
    """The JSON of a reply; raises ``APIError`` for an envelope (protocol.md 1.2), ``NetworkError``
    when it may be not the kernel's: then what became of the request is unknown."""
    if reply.status >= 300:
        raise error_of(reply.status, reply.body, what, unauthorized=unauthorized)
    if not reply.body.strip():
        return None
    return understood("JSON", lambda: json.loads(reply.body))
