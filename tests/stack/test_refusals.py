"""What a handler sees of an effect that policy refuses, by whatever road the refusal comes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from support.attempts import attempt, created
from support.refusing_port import RefusingPort

import rebuno_sync as rebuno
from rebuno_sync import Blocked, LeaseSuperseded, PolicyError, RateLimited, Terminated, ToolError
from rebuno_sync.agent import Outcome, OutcomeStatus
from rebuno_sync.kernel import Kernel
from rebuno_sync.mcp import wrap_mcp_tool
from rebuno_sync.types import DecisionKind, StepDecision

DENIED = RefusingPort.denied("too much money", "rule-7")
LIMITED = StepDecision(DecisionKind.RATE_LIMITED, reason="ten per minute")
DENIAL = "charge not allowed. reason: [policy_denied] too much money (HTTP 403)"


@rebuno.tool
def charge(cents: int) -> int:
    raise AssertionError("the body of a refused effect ran")


def invoke(arguments: dict[str, Any]) -> int:
    raise AssertionError("the body of a refused effect ran")


class Refusing:
    """Runs handlers on a kernel that refuses the effect ``charge``."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.execution = ""

    def run(self, handler: Callable[..., Any], decision: StepDecision = DENIED) -> Outcome:
        self.execution = created(self.kernel)
        port = RefusingPort(self.kernel.agent)
        port.refusals = {"charge": decision}
        return attempt(self.kernel, self.execution, handler, port=port)


@pytest.fixture
def refusing(kernel: Kernel) -> Refusing:
    return Refusing(kernel)


@pytest.mark.parametrize(
    "tool",
    [
        charge,
        rebuno.wrap_tool("charge", invoke),
        wrap_mcp_tool({"name": "charge"}, lambda name, arguments: invoke(arguments)),
    ],
    ids=["tool", "wrap_tool", "wrap_mcp_tool"],
)
def test_a_denied_tool_returns_a_text_for_the_model(refusing: Refusing, tool: Any) -> None:
    """It names the tool and the reason; no step is recorded and the execution goes on."""
    outcome = refusing.run(lambda: tool(cents=5))
    assert (outcome.status, outcome.output) == (OutcomeStatus.COMPLETED, DENIAL)
    assert refusing.kernel.list_steps(refusing.execution) == []


def test_a_denied_step_raises(refusing: Refusing) -> None:
    """There is no model to read a text: ``PolicyError`` with the reason and the rule."""

    def handler() -> tuple[str, str]:
        try:
            rebuno.step("charge", lambda: 1)
        except PolicyError as error:
            return error.message, error.rule_id
        return "", ""

    assert refusing.run(handler).output == ("too much money", "rule-7")


@pytest.mark.parametrize(
    ("reason", "recorded"),
    [("over_budget", "over_budget"), ("too much", "policy_denied: too much")],
)
def test_a_denial_that_is_not_handled_fails_the_execution_by_its_reason(
    refusing: Refusing, reason: str, recorded: str
) -> None:
    outcome = refusing.run(lambda: rebuno.step("charge", lambda: 1), RefusingPort.denied(reason))
    assert (outcome.status, outcome.reason) == (OutcomeStatus.FAILED, recorded)
    assert refusing.kernel.get(refusing.execution).failure_reason == recorded


def test_a_rate_limit_raises_from_tools_too(refusing: Refusing) -> None:
    outcome = refusing.run(lambda: charge(1), LIMITED)
    assert (outcome.status, outcome.reason) == (OutcomeStatus.FAILED, "ten per minute")
    assert isinstance(outcome.error, RateLimited)


# -- refusals that a provider's library wrapped


class ProviderError(Exception): ...


class CannotBePrinted(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def wrapped(message: str, depth: int = 1, *, by: str = "cause") -> Exception:
    error: Exception = ProviderError(message)
    for number in range(depth - 1):
        outer = ProviderError(f"attempt {number} failed")
        setattr(outer, f"__{by}__", error)
        error = outer
    return error


WORDS = [
    ("rebuno_refusal: blocked", Blocked, ""),
    ("rebuno_refusal: execution_blocked", Blocked, ""),
    ("rebuno_refusal: execution_terminal", Terminated, ""),
    ("rebuno_refusal: lease_superseded", LeaseSuperseded, ""),
    ("rebuno_refusal: denied", PolicyError, "policy_denied"),
    ("rebuno_refusal: denied reason=over budget", PolicyError, "over budget"),
    ("rebuno_refusal: rate_limited", RateLimited, "rate_limit_exceeded"),
    ("403 - {'error': {'message': 'rebuno_refusal: denied reason=no model'}}", PolicyError,
     "no model"),
    ('{"message": "rebuno_refusal: rate_limited reason=slow down"}\nmore', RateLimited,
     "slow down"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "kind", "reason"), WORDS)
@pytest.mark.parametrize("by", ["cause", "context"])
def test_a_refusal_is_found_in_what_a_library_made_of_it(
    message: str, kind: type[BaseException], reason: str, by: str
) -> None:
    """In the exception's text or that of its causes, up to the tenth; the reason to its end."""
    for depth in (1, 10):
        with pytest.raises(kind) as caught:
            rebuno.raise_for_refusal(wrapped(message, depth, by=by))
        if reason:
            assert getattr(caught.value, "message", str(caught.value)) == reason
        assert isinstance(pickle.loads(pickle.dumps(caught.value)), kind)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no refusal"),
        wrapped("rebuno_refusal: unheard_of"),
        wrapped("rebuno_refusal: denied", 11),
        CannotBePrinted(),
    ],
    ids=["none", "unknown", "too deep", "unprintable"],
)
def test_everything_else_is_let_be(error: Exception) -> None:
    rebuno.raise_for_refusal(error)


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("blocked", OutcomeStatus.BLOCKED),
        ("execution_terminal", OutcomeStatus.TERMINATED),
        ("lease_superseded", OutcomeStatus.LEASE_SUPERSEDED),
    ],
)
def test_a_wrapped_signal_that_leaves_a_handler_ends_the_attempt(
    refusing: Refusing, word: str, status: OutcomeStatus
) -> None:
    """Nothing is reported: the execution is not failed by it."""

    def handler() -> None:
        raise wrapped(f"rebuno_refusal: {word}", 3)

    outcome = refusing.run(handler)
    assert outcome.status is status
    assert refusing.kernel.get(refusing.execution).status == "running"


def test_a_wrapped_denial_that_leaves_a_handler_is_its_reason(refusing: Refusing) -> None:
    def handler() -> None:
        raise wrapped("rebuno_refusal: denied reason=over_budget", 2)

    outcome = refusing.run(handler)
    assert (outcome.status, outcome.reason) == (OutcomeStatus.FAILED, "over_budget")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PolicyError("over_budget"), "over_budget"),
        (PolicyError("Over budget"), "policy_denied: Over budget"),
        (PolicyError("line\n"), "policy_denied: line\n"),
        (RateLimited("slow down"), "slow down"),
        (ToolError("broke", "charge"), "tool_error: charge: broke"),
        (ToolError("broke"), "tool_error: broke"),
        (ValueError("odd"), "agent_error: ValueError: odd"),
        (rebuno.ConflictError("taken"), "agent_error: ConflictError: taken"),
        (rebuno.NetworkError("away"), "agent_error: NetworkError: away"),
    ],
)
def test_the_reason_of_a_failure(error: Exception, reason: str) -> None:
    """As protocol.md 13.7 has it."""
    assert rebuno.failure_reason(error) == reason
