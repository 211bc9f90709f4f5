"""What is asked under a lease besides steps (protocol.md 5.3, 5.4, 9.4, 9.6, 9.7, 17)."""

from __future__ import annotations

from rebuno_sync.types import Capture, Registration, Wake

from .cells import DIRECT, Column, rule
from .outcomes import NOT_EXECUTING, OUTDATED, STEP_FOUND
from .submits import STARTED

__all__ = ["LEASES"]


_EXECUTION = "POST /v0/executions/{id}"

FENCED = (
    rule("unknown", "!not_found", "5.4"),
    rule("foreign", "!forbidden", "5.4"),
    rule("ended", "!execution_terminal", "5.4"),
    rule("unheld", "!lease_superseded", "5.4"),
)

LEASES = (
    Column(
        "heartbeat",
        (
            rule("unknown", "!lease_superseded", "5.3", road=DIRECT),
            rule("unknown", "!not_found", "5.4"),
            rule("foreign", "!forbidden", "5.4"),
            rule("unheld", "!lease_superseded", "5.4"),
            rule("", "", "5.3"),
        ),
        f"{_EXECUTION}/heartbeat",
        port="agent.renew",
        direct=lambda w, s: w.kernel.agent.renew([s.lease])[0],
    ),
    Column(
        "heartbeats",
        (
            rule("unheld", "!lease_superseded", "17 leases"),
            rule("foreign", "!lease_superseded", "17 leases"),
            rule("", "", "17 leases"),
        ),
        "POST /v0/leases",
        lambda s: {
            "leases": [
                {
                    "execution_id": s.lease.execution_id,
                    "dispatch_id": s.lease.dispatch_id,
                    "dispatch_attempt": s.lease.attempt,
                    **({"runner": s.lease.runner} if s.lease.runner else {}),
                }
            ]
        },
        port="agent.renew",
        direct=lambda w, s: w.kernel.agent.renew([s.lease, s.lease])[1],
    ),
    Column(
        "complete",
        (*FENCED, rule("", "", "9.4", "execution.completed", lease="newest")),
        f"{_EXECUTION}/complete",
        {"output": "late", "state": {"n": 2}},
        port="agent.complete",
        direct=lambda w, s: w.kernel.agent.complete(s.lease, '"late"', '{"n": 2}'),
        about_step=True,
    ),
    Column(
        "fail",
        (*FENCED, rule("", "", "9.4", "execution.failed", lease="newest")),
        f"{_EXECUTION}/fail",
        {"error": "late"},
        port="agent.fail",
        direct=lambda w, s: w.kernel.agent.fail(s.lease, "late"),
    ),
    Column(
        "suspend",
        (
            *FENCED,
            rule("waits", "suspended", "9.7", "execution.blocked", lease="newest"),
            rule("", "not suspended", "9.7"),
        ),
        f"{_EXECUTION}/suspend",
        port="agent.suspend",
        direct=lambda w, s: w.kernel.agent.suspend(s.lease),
        about_step=True,
    ),
    Column(
        "sleep",
        (
            *FENCED,
            rule("step-none", "!not_found", "17 wake"),
            rule("step-executing", "suspended", "17 wake", "execution.blocked", lease="newest"),
            rule("", "not suspended", "17 wake"),
        ),
        f"{_EXECUTION}/suspend",
        lambda s: {"step_id": s.step_id, "seconds": 1000},
        port="agent.suspend",
        direct=lambda w, s: w.kernel.agent.suspend(s.lease, Wake(s.step_id, 1000.0)),
        about_step=True,
    ),
    Column(
        "release",
        (*FENCED, rule("", "", "17 release", lease="newest")),
        f"{_EXECUTION}/release",
        port="agent.release",
        direct=lambda w, s: w.kernel.agent.release(s.lease),
        about_step=True,
    ),
    Column(
        "release interrupted",
        (*FENCED, rule("", "", "17 release", lease="newest")),
        f"{_EXECUTION}/release",
        query="?interrupted=1",
        port="agent.release",
        direct=lambda w, s: w.kernel.agent.release(s.lease, interrupted=True),
    ),
    Column(
        "batch",
        (
            *STEP_FOUND,
            rule("ended", "execution_terminal execution_terminal", "8.1 (1), 7.2 (5)"),
            rule("settled", "replay", "17 batch"),
            NOT_EXECUTING,
            OUTDATED,
            rule("unheld", "recorded !lease_superseded", "5.4", "step.succeeded"),
            rule("", "recorded proceed", "17 batch", f"step.succeeded {STARTED}"),
        ),
        f"{_EXECUTION}/batch",
        lambda s: {
            "operations": [
                {"op": "complete_step", "step_id": s.step_id, "result": 2},
                {"op": "submit", "kind": "tool_call", "target": "new", "args": None},
            ]
        },
        about_step=True,
    ),
    Column(
        "register resource",
        (*FENCED, rule("", "resource", "9.6", "resource.registered")),
        f"{_EXECUTION}/resources",
        {"key": "disk", "driver_id": "disk"},
        port="agent.resources.register",
        direct=lambda w, s: w.kernel.agent.resources.register(
            s.lease, Registration("disk", "disk")
        ),
    ),
    Column(
        "bind resource",
        (*FENCED, rule("", "!not_found", "9.6")),
        f"{_EXECUTION}/resources/{{key}}/binding",
        {"binding": "here"},
        port="agent.resources.bind",
        direct=lambda w, s: w.kernel.agent.resources.bind(s.lease, "disk", '"here"'),
    ),
    Column(
        "capture",
        (*FENCED, rule("", "", "9.6", "resource.checkpoint_failed")),
        f"{_EXECUTION}/resources/checkpoints",
        {"captures": [{"key": "disk", "generation": 0, "checkpoint_ref": "late"}]},
        port="agent.resources.keep",
        direct=lambda w, s: w.kernel.agent.resources.keep(
            s.lease, [Capture("disk", 0, "late")], []
        ),
    ),
)
