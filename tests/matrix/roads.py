"""A kernel's file with a road to it: in process, or over HTTP (the WSGI application, asked with
signed requests)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kernel_http.wire import AGENT, OTHER, SECRET, Answer, Wire

from rebuno_sync.clock import ManualClock
from rebuno_sync.errors import APIError
from rebuno_sync.kernel import Kernel, dispatches
from rebuno_sync.kernel.http.auth import Auth
from rebuno_sync.kernel.http.routes import ROUTES
from rebuno_sync.kernel.moment import Moment
from rebuno_sync.kernel.store import Connection, tables
from rebuno_sync.kernel.webhooks import EXTENSIONS
from rebuno_sync.ports import AgentKernel
from rebuno_sync.types import (
    Agent,
    ApiKey,
    Execution,
    LeaseKey,
    PolicyReport,
    Proposal,
    Renewal,
    ResourceView,
    StepDecision,
)

from .cells import DIRECT, Column, Scene
from .wire_agent import WireAgent

__all__ = ["AGENT", "OTHER", "SECRET", "World"]

DAY = 86400.0

_POLICY = """
default_action: allow
rules:
  - {id: ask, when: {target: "ask*"}, then: {decision: require_approval}}
  - id: bob
    when: {target: "bob*"}
    then: {decision: require_approval, approval_config: {approvers: [bob]}}
  - {id: no, when: {target: "no*"}, then: {decision: deny, reason: not here}}
  - id: never
    when: {target: "never*"}
    then: {decision: allow, rate_limit: {max_calls: 1, window: 20000h, per_what: global}}
  - id: later
    when: {target: "later*"}
    then:
      decision: allow
      rate_limit: {max_calls: 1, window: 20000h, per_what: global, max_wait: 30000h}
"""

STATUS_OF = {
    "not_found": 404,
    "conflict": 409,
    "validation_error": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "execution_terminal": 409,
    "lease_superseded": 409,
}
"""protocol.md 1.2."""

_SUPERSEDED = "!lease_superseded"


class World:
    """One file, on a clock that is moved by hand, for the cells of one row."""

    def __init__(self, folder: Path, road: str) -> None:
        self.road = road
        self.clock = ManualClock()
        self.path = folder / "kernel.db"
        self.kernel = Kernel(self.path, clock=self.clock)
        self.mortal = Kernel(self.path, clock=self.clock, deadline=1000.0)
        """What it creates has a deadline."""
        self.wire = Wire(self.kernel, self.clock)
        webhook = "" if road == DIRECT else "http://agent/webhook"
        for agent_id in (AGENT, OTHER):
            self.kernel.register_agent(agent_id, webhook_url=webhook, secret=SECRET)
        self.kernel.set_policy(AGENT, _POLICY)
        self.agent: AgentKernel | WireAgent = (
            self.kernel.agent if road == DIRECT else WireAgent(self.wire, AGENT)
        )
        self._use_tokens_up()

    def _use_tokens_up(self) -> None:
        lease = self.lease(self.kernel.create(AGENT).id)
        for target in ("never", "later"):
            self.agent.submit(lease, Proposal("tool_call", target, "null"))
        self.kernel.cancel(lease.execution_id)

    def close(self) -> None:
        self.mortal.close()
        self.kernel.close()

    def outlive(self) -> None:
        """Let so much time pass that what has ended is removed."""
        self.clock.advance(DAY + 1)
        self.kernel.core.retention.sweep()

    # -- attempts

    def claim(self, execution_id: str) -> LeaseKey | None:
        """The execution's next attempt, if there is one now: claimed by this process, or delivered
        to an agent elsewhere."""
        if self.road == DIRECT:
            claim = self.kernel.claim(execution_id)
            return None if claim is None else claim.lease
        self.kernel.get(execution_id)
        now = Moment.of(self.clock)
        claiming = self.kernel._claiming(now, None)

        def deliver(db: Connection) -> LeaseKey | None:
            claim = claiming(execution_id, db, remote=True)
            if claim is None:
                return None
            dispatches.delivered(db, claim.lease, now)
            return claim.lease

        return claiming.committed(deliver)

    def lease(self, execution_id: str) -> LeaseKey:
        """The next attempt, which has to be due."""
        lease = self.claim(execution_id)
        assert lease is not None, "no attempt is due"
        return lease

    def worth(self, lease: LeaseKey) -> str:
        """Of a lease: ``held``, ``newest`` when its dispatch was retired or given back, or else
        ``outdated`` (protocol.md 5.4)."""
        at = self.kernel.core.store().read(lambda db: tables.standing(db, lease))
        if at is None or at.attempt != lease.attempt:
            return "outdated"
        return "held" if at.dispatch_status == "in_flight" else "newest"

    def dispatch_status(self, lease: LeaseKey) -> str:
        """Of a lease's dispatch; empty where there is none."""
        at = self.kernel.core.store().read(lambda db: tables.standing(db, lease))
        return "" if at is None or at.dispatch_status is None else str(at.dispatch_status)

    # -- asking

    def ask(self, column: Column, scene: Scene) -> str:
        """What the write is answered, in a word."""
        if self.road == DIRECT or column.anywhere:
            assert column.direct is not None
            try:
                return _said(column.direct(self, scene))
            except APIError as error:
                return _refused(error.status_code, error.code)
        return _read(self._send(column, scene))

    def _send(self, column: Column, scene: Scene) -> Answer:
        method, _, pattern = column.route.partition(" ")
        named = {
            "executions": scene.execution_id,
            "approvals": scene.approval_id,
            "api-keys": scene.key,
            "agents": scene.agent,
        }
        names = {
            "id": named.get(pattern.split("/")[2]),
            "step": scene.step_id,
            "key": scene.key or "disk",
            "agent": scene.agent,
        }
        target = pattern.format_map(names) + column.query
        body = column.body(scene) if callable(column.body) else column.body
        if ROUTES[pattern][method].auth is Auth.HMAC:
            more = {"Rebuno-Extensions": ", ".join(EXTENSIONS)}
            if column.request_id:
                more["Rebuno-Request-Id"] = column.request_id
            lease = scene.lease if scene.lease.dispatch_id else None
            signer = scene.agent or AGENT
            return self.wire.act(method, target, body, lease, agent=signer, more=more)
        if column.by_token:
            headers = {"Authorization": f"Bearer {scene.token}"}
            return self.wire.send(method, target, json.dumps(body).encode(), headers)
        return self.wire.operate(method, target, body)


def _said(value: object) -> str:
    match value:
        case None | Renewal.ACCEPTED:
            return ""
        case Renewal.SUPERSEDED:
            return _SUPERSEDED
        case StepDecision():
            return str(value.decision)
        case bool():
            return "suspended" if value else "not suspended"
        case Execution():
            return str(value.status)
        case ResourceView():
            return "resource"
        case ApiKey():
            return "token"
        case Agent():
            return "agent"
        case PolicyReport():
            return "report"
        case str():
            return value
    raise AssertionError(f"an unknown answer: {value!r}")


_TOLD_BY = {
    "driver_id": "resource",
    "token": "token",
    "webhook_url": "agent",
    "executions": "page",
}


def _refused(status: int, code: str) -> str:
    assert status == STATUS_OF[code], code
    return f"!{code}"


def _read(answer: Answer) -> str:
    if answer.status == 204:
        return ""
    if answer.status >= 400:
        return _refused(answer.status, answer.code)
    return _word_of(answer.json)


def _word_of(body: dict[str, Any]) -> str:
    if "failed" in body:
        return "report"
    if "results" in body:
        return " ".join(_result(one["status"], one["body"]) for one in body["results"])
    if "superseded" in body:
        return _SUPERSEDED if body["superseded"] else ""
    if "suspended" in body:
        return "suspended" if body["suspended"] else "not suspended"
    if word := body.get("decision") or body.get("status"):
        return str(word)
    return next(word for member, word in _TOLD_BY.items() if member in body)


def _result(status: int, body: dict[str, Any]) -> str:
    if status < 400:
        return _word_of(body)
    return _refused(status, body["code"])
