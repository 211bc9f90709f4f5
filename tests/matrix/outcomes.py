"""Outcomes of steps, pieces of what they receive, and their tries (protocol.md 8, 17)."""

from __future__ import annotations

from .cells import Column, rule

__all__ = ["NOT_EXECUTING", "OUTCOMES", "OUTDATED", "STEP_FOUND"]


STEP_FOUND = (
    rule("unknown", "!not_found", "8.1"),
    rule("step-none", "!not_found", "8.1"),
    rule("foreign", "!forbidden", "8.1"),
)
OUTCOME = (
    *STEP_FOUND,
    rule("ended", "execution_terminal", "8.1 (1)"),
    rule("settled", "replay", "8.1 (2)"),
)
NOT_EXECUTING = rule("idle", "!conflict", "8.1 (3)")
OUTDATED = rule("outdated", "!lease_superseded", "5.4")

_STEP = "POST /v0/executions/{id}/steps/{step}"

OUTCOMES = (
    Column(
        "complete step",
        (*OUTCOME, NOT_EXECUTING, OUTDATED, rule("", "recorded", "8.1 (5)", "step.succeeded")),
        f"{_STEP}/complete",
        {"result": 2},
        port="agent.complete_step",
        direct=lambda w, s: w.kernel.agent.complete_step(s.lease, s.step_id, "2"),
        about_step=True,
    ),
    Column(
        "fail step",
        (*OUTCOME, NOT_EXECUTING, OUTDATED, rule("", "recorded", "8.2", "step.failed")),
        f"{_STEP}/fail",
        {"error": {"message": "late"}},
        port="agent.fail_step",
        direct=lambda w, s: w.kernel.agent.fail_step(s.lease, s.step_id, '{"message": "late"}'),
        about_step=True,
    ),
    Column(
        "piece",
        (
            *STEP_FOUND,
            OUTDATED,
            rule("open", "", "8.4"),
            rule("", "!conflict", "8.4"),
        ),
        f"{_STEP}/stream",
        {"seq": 0, "data": "late"},
        port="agent.delta",
        direct=lambda w, s: w.kernel.agent.delta(s.lease, s.step_id, 0, "late"),
        about_step=True,
    ),
    Column(
        "failed try",
        (
            *OUTCOME,
            rule("tried", "recorded", "17 attempts"),
            NOT_EXECUTING,
            OUTDATED,
            rule("", "recorded", "17 attempts", "step.retrying"),
        ),
        f"{_STEP}/attempt",
        {"attempt": 1, "error": "late", "retry_in": 1},
        port="agent.retrying",
        direct=lambda w, s: w.kernel.agent.retrying(s.lease, s.step_id, 1, '"late"', 1.0),
        about_step=True,
    ),
    Column(
        "next try",
        (
            *OUTCOME,
            rule("tried unheld", "!lease_superseded", "17 attempts"),
            rule("tried", "recorded", "17 attempts", "step.executing"),
            rule("", "!conflict", "17 attempts"),
        ),
        f"{_STEP}/attempt",
        {"attempt": 2},
        port="agent.begin_try",
        direct=lambda w, s: w.kernel.agent.begin_try(s.lease, s.step_id, 2),
        about_step=True,
    ),
)
