"""A refused model call looks to a provider's client like the provider's own refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.attempts import attempt, created
from support.deciding_port import DecidingPort
from support.provider_server import Provider

import rebuno_sync as rebuno
from rebuno_sync import (
    PolicyError,
    RateLimited,
    raise_for_refusal,
)
from rebuno_sync.errors import APIError
from rebuno_sync.kernel import Kernel
from rebuno_sync.types import DecisionKind, StepDecision

from .clients import MESSAGES, bedrock, claude, gpt

DENIED = StepDecision(DecisionKind.DENIED, "s", reason="too_dear", rule_id="r1")
RATE_LIMITED = StepDecision(DecisionKind.RATE_LIMITED, reason="slow_down")


def _bedrock(provider: Provider) -> None:
    client = bedrock(provider.url)
    provider.closing.callback(client.close)
    client.converse(modelId="m", messages=[])


SDKS: dict[str, Callable[[Provider], Any]] = {
    "openai": lambda p: gpt(p).chat.completions.create(model="m", messages=MESSAGES),
    "openai, httpx": lambda p: gpt(p, "httpx").responses.create(model="m", input="Hello?"),
    "anthropic": lambda p: claude(p).messages.create(model="m", max_tokens=9, messages=MESSAGES),
    "botocore": _bedrock,
}


@pytest.mark.parametrize("sdk", SDKS)
@pytest.mark.parametrize(
    ("decision", "status", "raised"),
    [(DENIED, 403, PolicyError), (RATE_LIMITED, 429, RateLimited)],
)
def test_a_refusal_is_the_sdks_own_error(
    kernel: Kernel,
    provider: Provider,
    sdk: str,
    decision: StepDecision,
    status: int,
    raised: type[Exception],
) -> None:
    """403 or 429, asked once; ``raise_for_refusal`` says what refused it."""
    port = DecidingPort(kernel.agent)
    port.decisions.append(decision)

    def handler(**_: Any) -> str:
        try:
            SDKS[sdk](provider)
        except Exception as error:
            found = getattr(error, "status_code", None)
            if found is None:
                response: Any = error.response  # type: ignore[attr-defined]
                found = response["ResponseMetadata"]["HTTPStatusCode"]
            assert found == status
            with pytest.raises(raised) as meant:
                raise_for_refusal(error)
            return getattr(meant.value, "message", str(meant.value))
        return "allowed"

    assert attempt(kernel, created(kernel), handler, port=port).output == decision.reason
    assert provider.requests == []


@pytest.mark.parametrize("decision", ["blocked", "execution_blocked", "execution_terminal"])
@pytest.mark.parametrize("sdk", SDKS)
def test_a_signal_passes_straight_through_an_sdk(
    kernel: Kernel, provider: Provider, sdk: str, decision: str
) -> None:
    """No retry, no error of the SDK's."""
    port = DecidingPort(kernel.agent)
    port.decisions.append(StepDecision(decision, "s"))

    def handler(**_: Any) -> str:
        try:
            SDKS[sdk](provider)
        except Exception:
            return "swallowed"
        return "allowed"

    outcome = attempt(kernel, created(kernel), handler, port=port)
    assert outcome.status == ("terminated" if decision == "execution_terminal" else "blocked")
    assert provider.requests == []


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_an_answer_that_the_kernel_will_not_store_is_not_asked_for_again(
    kernel: Kernel, provider: Provider, sdk: str
) -> None:
    """Whatever the SDK makes of the error: it has been paid for once."""
    port = DecidingPort(kernel.agent)
    port.refuse("complete_step", APIError("too large"), times=3)
    port.takes_deltas = False

    def handler(**_: Any) -> str:
        try:
            SDKS[sdk](provider)
        except Exception as error:
            return repr(error.__cause__ or error)
        return "stored"

    outcome = attempt(kernel, created(kernel), handler, port=port)
    assert "ran, value not storable" in outcome.output
    assert len(provider.requests) == 1


def test_a_refusal_in_a_tool_leaves_its_step_open_if_it_is_passed_on(
    kernel: Kernel, provider: Provider
) -> None:
    """What the SDK raises fails the tool, as its own error would."""
    port = DecidingPort(kernel.agent)
    port.decisions.append(DENIED)

    @rebuno.tool
    def asks() -> None:
        SDKS["openai"](provider)

    def handler(**_: Any) -> str:
        try:
            asks()
        except rebuno.ToolError as error:
            return error.error_type
        return "allowed"

    assert "PermissionDenied" in attempt(kernel, created(kernel), handler, port=port).output
