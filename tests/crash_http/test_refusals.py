"""C32: a kernel that cannot store a NUL, as one on Postgres, and one that can."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.effect_log import EffectLog
from support.lossy_line import LossyLine, Sent

from .processes import AgentProcess, KernelProcess

REFUSAL = {"code": "internal_error", "message": "unsupported Unicode escape sequence"}


def has_nul(value: object) -> bool:
    """Whether a text somewhere in JSON has the character itself."""
    if isinstance(value, dict):
        return any(has_nul(part) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return any(has_nul(part) for part in value)
    return isinstance(value, str) and "\0" in value


def refuses_nul(sent: Sent) -> tuple[int, bytes] | None:
    """As a kernel on Postgres answers: nothing of the request was recorded."""
    if not sent.body or not has_nul(json.loads(sent.body)):
        return None
    return 500, json.dumps(REFUSAL).encode()


@pytest.mark.parametrize("extensions", [True, False], ids=["extensions", "plain"])
@pytest.mark.parametrize("once", [True, False], ids=["at most once", "safe to retry"])
def test_c32_a_nul_that_the_kernel_refuses_is_a_failure_of_the_step(
    tmp_path: Path, extensions: bool, once: bool
) -> None:
    """As a result: recorded as "ran, value not storable by this kernel"; as an argument: an error
    before the body. No effect is repeated and the execution goes on to its end."""
    logs = tmp_path / "logs"
    logs.mkdir()
    without = () if extensions else ("rebuno-extensions",)
    with (
        KernelProcess(tmp_path, "--lease-timeout", "2") as kernel,
        LossyLine(("127.0.0.1", kernel.port), answers=refuses_nul, without=without) as line,
        AgentProcess("storing_served.py", tmp_path, "storing", kernel=line.url, logs=logs) as agent,
        LossyLine(("127.0.0.1", agent.port), without=without) as webhooks,
    ):
        agent.register(kernel, webhooks.url + "/webhook")
        execution = kernel.client.create("storing", {"once": once})
        output = kernel.client.wait(execution.id, timeout=20).output
        assert [line.label for line in EffectLog(logs / execution.id).lines()] == [
            "first",
            "result",
            "last",
        ]
        assert (output["first"], output["last"]) == ("plain", "!")
        assert "not storable by this kernel" in output["result"]
        assert output["argument"] == "APIError 500"
        steps = {step.args["label"]: step for step in kernel.client.list_steps(execution.id)}
        statuses = {label: step.status.value for label, step in steps.items()}
        assert statuses == {"first": "succeeded", "result": "failed", "last": "succeeded"}


def test_c32_our_kernel_stores_a_nul(tmp_path: Path) -> None:
    """As a result and as an argument, over HTTP as elsewhere."""
    logs = tmp_path / "logs"
    logs.mkdir()
    with (
        KernelProcess(tmp_path) as kernel,
        AgentProcess(
            "storing_served.py", tmp_path, "storing", kernel=kernel.url, logs=logs
        ) as agent,
    ):
        agent.register(kernel)
        output = kernel.client.run("storing", {"once": False}, timeout=20)
        assert output == {
            "first": "plain",
            "result": "before\0after",
            "argument": "before\0after",
            "last": "!",
        }
