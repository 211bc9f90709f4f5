"""Tokens that a model call used (protocol.md 8.3)."""

from __future__ import annotations

import json

from .deployments import Deployment
from .moves import call, log, perform, start
from .scenarios import scenario

ENVELOPE = {
    "status": 200,
    "headers": {"content-type": "application/json"},
    "body": json.dumps({"usage": {"prompt_tokens": 11, "completion_tokens": 7}}),
}


@scenario("events")
def test_the_usage_of_a_model_call_is_in_its_event_and_its_step(on: Deployment) -> None:
    """Of a tool that happens to return such a thing it is not."""
    lease = start(on)
    asked = perform(on, lease, call("m", {"n": 1}, kind="llm_call"), ENVELOPE).step_id
    perform(on, lease, call("other", {"n": 1}), ENVELOPE)
    payloads = [
        payload for kind, payload in log(on, lease.execution_id) if kind == "step.succeeded"
    ]
    used = [payload.get("usage") for payload in payloads]
    assert used == [{"input_tokens": 11, "output_tokens": 7}, None]
    shown = {step.step_id: step.usage for step in on.operator.list_steps(lease.execution_id)}
    usage = shown.pop(asked)
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (11, 7)
    assert list(shown.values()) == [None]


@scenario("events")
def test_a_model_call_that_tells_no_usage_has_none(on: Deployment) -> None:
    """Its event says nothing of it."""
    lease = start(on)
    perform(on, lease, call("m", kind="llm_call"), {"status": 200, "headers": {}, "body": "{}"})
    [payload] = [p for kind, p in log(on, lease.execution_id) if kind == "step.succeeded"]
    assert "usage" not in payload
