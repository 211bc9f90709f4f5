"""Policies: what a bundle does to the steps of an agent (protocol.md 11, 7.2, 7.4)."""

from __future__ import annotations

import hashlib
import json

import pytest

from rebuno_sync.types import StepDecision

from .deployments import AGENT, Changeable, Deployment
from .moves import attempt, call, code_of, kinds, log, next_attempt, once, perform, rules, start
from .scenarios import bundle, scenario


def test_b08_a_denied_step_has_one_end(on: Deployment) -> None:
    """It is denied to this attempt and to the next, and its body never runs."""
    rules(on, "charge", "{decision: deny, reason: no money}")
    lease = start(on)
    decision = on.agent.submit(lease, call("charge"))
    assert (decision.decision, decision.reason) == ("denied", "no money")
    (step,) = on.operator.list_steps(lease.execution_id)
    assert (step.status, step.error) == ("denied", {"reason": "no money", "rule_id": "ask"})
    again = on.agent.submit(next_attempt(on, lease), call("charge"))
    assert (again.decision, again.step_id, again.reason) == ("denied", step.step_id, "no money")
    told = [kind for kind in kinds(on, lease.execution_id) if kind.startswith("step.")]
    assert told == ["step.proposed", "step.denied"]


@scenario("decisions name their rule")
def test_a_denial_names_its_rule(on: Deployment) -> None:
    """To the agent at once and on a replay, and in the log, with the policy's hash."""
    rules(on, "charge", "{decision: deny}")
    lease = start(on)
    decision = on.agent.submit(lease, call("charge"))
    assert (decision.reason, decision.rule_id) == ("policy_denied", "ask")
    assert on.agent.submit(next_attempt(on, lease), call("charge")) == decision
    (payload,) = [payload for kind, payload in log(on, lease.execution_id) if kind == "step.denied"]
    assert payload.pop("policy_hash")
    assert payload == {
        "step_id": decision.step_id,
        "step_type": "tool_call",
        "target": "charge",
        "rule_id": "ask",
        "error": {"reason": "policy_denied", "rule_id": "ask"},
    }


def test_a_policy_counts_for_new_steps_only(on: Deployment) -> None:
    """What was decided stays decided; the next new step is judged by what is set now."""
    lease = start(on)
    perform(on, lease, call("charge"), 1)
    rules(on, "charge", "{decision: deny}")
    assert on.agent.submit(lease, call("charge")).decision == "denied"
    on.operator.set_policy(AGENT, "")
    later = next_attempt(on, lease)
    decisions = [on.agent.submit(later, call("charge")).decision for _ in range(3)]
    assert decisions == ["replay", "denied", "proceed"]


@pytest.mark.parametrize(
    ("env", "decision"), [("staging-123", "denied"), ("prod-123", "proceed"), ("prod", "denied")]
)
@pytest.mark.parametrize("otherwise", ["default_action: deny\n", ""], ids=["said", "unsaid"])
def test_b30_a_pattern_picks_by_an_argument(
    on: Deployment, otherwise: str, env: str, decision: str
) -> None:
    """RE2, found anywhere unless it is anchored; what no rule allows is denied."""
    pattern = "arguments: {env: {regex: ^prod-.*}}"
    allowing = bundle("deploy", "{decision: allow}", on.generation, when=pattern)
    on.operator.set_policy(AGENT, allowing.replace("default_action: allow\n", otherwise))
    assert on.agent.submit(start(on), call("deploy", {"env": env})).decision == decision


@scenario("raw arguments")
@pytest.mark.parametrize("cents", [1000000, 5, 1.5, None, [1, "a"], {"b": 1}])
def test_arguments_are_compared_as_they_are_written(on: Deployment, cents: object) -> None:
    """A number by its digits, a list as compact JSON."""
    text = json.dumps(json.dumps(cents, separators=(",", ":")))
    rules(on, "charge", "{decision: deny}", when=f"arguments: {{cents: {{equals: {text}}}}}")
    assert on.agent.submit(start(on), call("charge", {"cents": cents})).decision == "denied"
    assert on.agent.submit(start(on), call("charge", {"cents": 7})).decision == "proceed"


@scenario("decisions name their rule")
@pytest.mark.parametrize("action", ["allow", "require_approval"])
def test_the_log_says_why_a_step_may_run_or_waits(on: Deployment, action: str) -> None:
    """The rule, its reason, and the hash of the very text that decided (protocol.md 10)."""
    text = bundle("charge", f"{{decision: {action}, reason: small}}", on.generation)
    on.operator.set_policy(AGENT, text)
    lease = start(on)
    decision = on.agent.submit(lease, call("charge"))
    told = dict(log(on, lease.execution_id))
    kind = "step.allowed" if action == "allow" else "step.awaiting_approval"
    assert told[kind] == {
        "step_id": decision.step_id,
        "step_type": "tool_call",
        "target": "charge",
        "rule_id": "ask",
        "reason": "small",
        "policy_hash": hashlib.sha256(text.encode()).hexdigest(),
    }


@scenario("judges")
@pytest.mark.parametrize("fallback", ["", ", fallback: allow"])
def test_nothing_is_allowed_by_a_judge_that_there_is_not(on: Deployment, fallback: str) -> None:
    """Whatever its fallback says: that is for one that does not answer (protocol.md 11.9). The
    rule's other terms hold.
    """
    judge = f"judge: {{instructions: be kind{fallback}}}"
    limit = "rate_limit: {max_calls: 1, window: 1h}"
    rules(on, "charge", f"{{decision: judge, {judge}, {limit}}}")
    lease = start(on)
    decision = on.agent.submit(lease, call("charge"))
    assert (decision.decision, decision.reason) == ("denied", "judge not configured")
    assert on.agent.submit(lease, call("charge")).decision == "rate_limited"


@scenario("document order")
def test_the_first_rule_of_the_document_decides(on: Deployment) -> None:
    """Not the most specific, and not by any number."""
    on.operator.set_policy(
        AGENT,
        "rules:\n"
        "  - {id: first, when: {target: 'c*'}, then: {decision: allow}}\n"
        "  - {id: second, when: {target: charge}, then: {decision: deny}}\n",
    )
    lease = start(on)
    assert on.agent.submit(lease, call("charge")).decision == "proceed"
    other = on.agent.submit(lease, call("search"))
    assert (other.decision, other.reason) == ("denied", "no explicit allow rule matched")
    assert on.agent.submit(lease, call("clock", kind="local")).decision == "proceed"


@pytest.mark.parametrize(
    "wrong", ["rules: [", "rules: [{then: {decision: allow}}]", "rules: 5"], ids=[0, 1, 2]
)
def test_b29_a_bundle_that_is_none_is_refused(on: Deployment, wrong: str) -> None:
    """And the policy that was set before stays."""
    rules(on, "charge", "{decision: deny}")
    assert code_of(lambda: on.operator.set_policy(AGENT, wrong)) == "validation_error"
    assert on.agent.submit(start(on), call("charge")).decision == "denied"


@pytest.mark.parametrize(
    "broken",
    ["rules: 5", "{", "default_action: allow\nrules: [{then: {decision: allow}}]"],
    ids=["no rules", "no YAML", "no id"],
)
def test_b31_a_policy_that_nobody_can_read_allows_nothing(on: Changeable, broken: str) -> None:
    """Whoever put it into the file, and whatever it would allow otherwise."""
    lease = start(on)
    on.change_file("UPDATE agents SET policy_bundle = ?", broken)
    decision = on.agent.submit(lease, call())
    assert (decision.decision, decision.reason) == ("denied", "policy_bundle_invalid")
    assert decision.rule_id == "bundle-error"
    assert "policy_hash" not in log(on, lease.execution_id)[-1][1]


def test_b31_the_calls_of_an_agent_that_is_gone_are_denied(on: Changeable) -> None:
    """Its policy is gone with it, though it had none and all was allowed."""
    lease = start(on)
    assert on.agent.submit(lease, call()).decision == "proceed"
    on.change_file("DELETE FROM agents")
    decision = on.agent.submit(lease, call("other"))
    assert (decision.decision, decision.reason) == ("denied", "agent_lookup_failed")
    assert decision.rule_id == "bundle-error"


@scenario("strict bundles")
def test_a_bundle_of_the_first_generation_is_refused(on: Deployment) -> None:
    """Its priorities would mean nothing."""
    early = "rules: [{id: a, priority: 1, then: {decision: allow}}]"
    assert code_of(lambda: on.operator.set_policy(AGENT, early)) == "validation_error"


def test_a_policy_of_nobody(on: Deployment) -> None:
    """The agent has to be registered."""
    assert code_of(lambda: on.operator.set_policy("nobody", "")) == "not_found"


def test_a_new_registration_forgets_the_policy(on: Deployment) -> None:
    """It replaces all that is known of the agent (protocol.md 2.3)."""
    rules(on, "charge", "{decision: deny}")
    on.register(AGENT)
    assert on.agent.submit(start(on), call("charge")).decision == "proceed"


def test_b28_no_policy_allows_what_may_have_happened(on: Deployment) -> None:
    """The rule against a second unknown outcome comes before every bundle."""
    rules(on, "charge", "{decision: allow}")
    lease = start(on)
    on.agent.submit(lease, once("charge"))
    later = next_attempt(on, lease)
    assert on.agent.submit(later, once("charge")).decision == "replay"
    assert on.agent.submit(later, once("charge")).decision == "denied"


# -- rate limits


def test_b24_a_call_beyond_its_limit_is_refused(on: Deployment) -> None:
    """It is no step, and takes no place: the same call is refused again, not replayed."""
    rules(on, "charge", "{decision: allow, rate_limit: {max_calls: 1, window: 1h}}")
    lease = start(on)
    first = on.agent.submit(lease, call("charge"))
    assert first.decision == "proceed"
    refused = on.agent.submit(lease, call("charge"))
    assert refused == StepDecision("rate_limited", reason="rate_limit_exceeded")
    assert [step.step_id for step in on.operator.list_steps(lease.execution_id)] == [first.step_id]


@scenario("limits are told")
def test_a_refusal_is_in_the_log(on: Deployment) -> None:
    """With the step that it would have been."""
    rules(on, "charge", "{decision: allow, rate_limit: {max_calls: 1, window: 1h}}")
    lease = start(on)
    on.agent.submit(lease, call("charge"))
    on.agent.submit(lease, call("charge"))
    kind, payload = log(on, lease.execution_id)[-1]
    assert (kind, len(payload.pop("step_id"))) == ("step.rate_limited", 64)
    assert payload == {
        "step_type": "tool_call",
        "target": "charge",
        "rule_id": "ask",
        "error": {"reason": "rate_limit_exceeded", "rule_id": "ask"},
    }


@scenario("on demand")
@pytest.mark.parametrize(("per_what", "others"), [("execution", 2), ("agent", 0), ("global", 0)])
def test_a_limit_counts_for_its_scope(on: Deployment, per_what: str, others: int) -> None:
    """Two calls for each execution, or for all of them; half the window brings one back."""
    limit = f"rate_limit: {{max_calls: 2, window: 60s, per_what: {per_what}}}"
    rules(on, "charge", f"{{decision: allow, {limit}}}")

    def granted() -> int:
        lease = start(on)
        return [on.agent.submit(lease, call("charge")).decision for _ in range(3)].count("proceed")

    assert granted() == 2
    assert granted() == others
    on.pass_time(0.25)
    assert granted() == max(others, 1)


@scenario("parking")
@scenario("on demand")
def test_a_call_may_wait_for_its_limit(on: Deployment) -> None:
    """The execution is parked until there is a token again, once in its life."""
    limit = "rate_limit: {max_calls: 1, window: 30s, max_wait: 60s}"
    rules(on, "charge", f"{{decision: allow, {limit}}}")
    lease = start(on)
    perform(on, lease, call("charge"), 1)
    parked = on.agent.submit(lease, call("charge"))
    assert parked == StepDecision("blocked", reason="rate_limit_exceeded")
    assert on.operator.get(lease.execution_id).status == "running"
    assert kinds(on, lease.execution_id)[-2:] == ["step.rate_limited", "dispatch.queued"]
    assert code_of(lambda: on.agent.submit(lease, call("other"))) == "lease_superseded"
    assert on.lease(lease.execution_id) is None
    on.pass_time(0.375)  # The wait, and the half of it that chance may add.
    later = attempt(on, lease.execution_id)
    decisions = [on.agent.submit(later, call("charge")).decision for _ in range(3)]
    assert decisions == ["replay", "proceed", "rate_limited"]


@scenario("parking")
def test_a_wait_that_would_be_too_long_is_a_refusal(on: Deployment) -> None:
    """The rule says how long is too long."""
    limit = "rate_limit: {max_calls: 1, window: 1h, max_wait: 5m}"
    rules(on, "charge", f"{{decision: allow, {limit}}}")
    lease = start(on)
    on.agent.submit(lease, call("charge"))
    assert on.agent.submit(lease, call("charge")).decision == "rate_limited"


def test_a_denied_call_counts_against_its_limit(on: Deployment) -> None:
    """The limit is the rule's, whatever the rule decides."""
    rules(on, "charge", "{decision: deny, rate_limit: {max_calls: 1, window: 1h}}")
    lease = start(on)
    decisions = [on.agent.submit(lease, call("charge")).decision for _ in range(2)]
    assert decisions == ["denied", "rate_limited"]


def test_a_refused_call_takes_no_place(on: Deployment) -> None:
    """When there is room again it is the next occurrence, and a later attempt meets it there
    (protocol.md 6.3).
    """
    limited = "{decision: allow, rate_limit: {max_calls: 1, window: 1h}}"
    rules(on, "charge", limited)
    lease = start(on)
    perform(on, lease, call("charge"), 1)
    assert on.agent.submit(lease, call("charge")).decision == "rate_limited"
    on.operator.set_policy(AGENT, "")
    perform(on, lease, call("charge"), 2)
    occurrences = sorted(it.occurrence for it in on.operator.list_steps(lease.execution_id))
    assert occurrences == [0, 1]
    later = next_attempt(on, lease)
    assert [on.agent.submit(later, call("charge")).result for _ in range(2)] == [1, 2]


def test_an_unknown_outcome_is_refused_before_its_limit_counts(on: Deployment) -> None:
    """The refusal takes no token (protocol.md 7.2 (11)); nor does a replay."""
    rules(on, "charge", "{decision: allow, rate_limit: {max_calls: 2, window: 1h}}")
    lease = start(on)
    on.agent.submit(lease, once("charge"))
    later = next_attempt(on, lease)
    assert on.agent.submit(later, once("charge")).decision == "replay"
    for _ in range(3):
        assert on.agent.submit(later, once("charge")).decision == "denied"
    assert on.agent.submit(later, once("charge", "another")).decision == "proceed"
    assert on.agent.submit(later, once("charge", "a third")).decision == "rate_limited"


# -- budgets

ANSWER = {"status": 200, "body": '{"usage": {"prompt_tokens": 30, "completion_tokens": 25}}'}


def test_b35_a_budget_ends_model_calls(on: Deployment) -> None:
    """The call that crosses the limit runs; the next one is denied."""
    rules(on, "model", "{decision: allow, budget: {max_tokens: 100}}")
    lease = start(on)
    for _ in range(2):
        perform(on, lease, call("model", kind="llm_call"), ANSWER)
    decision = on.agent.submit(lease, call("model", kind="llm_call"))
    assert (decision.decision, decision.reason) == ("denied", "execution_token_budget_exceeded")
    assert on.agent.submit(start(on), call("model", kind="llm_call")).decision == "proceed"
    told = [payload for kind, payload in log(on, lease.execution_id) if kind == "step.succeeded"]
    assert told[0]["usage"] == {"input_tokens": 30, "output_tokens": 25}


def test_b35_a_budget_may_ask_instead(on: Deployment) -> None:
    """Somebody may grant a call beyond it."""
    budget = "budget: {max_tokens: 50, on_exceed: require_approval}"
    rules(on, "model", f"{{decision: allow, {budget}}}")
    lease = start(on)
    perform(on, lease, call("model", kind="llm_call"), ANSWER)
    blocked = on.agent.submit(lease, call("model", kind="llm_call"))
    assert blocked.decision == "blocked"
    on.operator.grant_approval(blocked.approval_id, "alice")
    later = attempt(on, lease.execution_id)
    decisions = [on.agent.submit(later, call("model", kind="llm_call")).decision for _ in range(2)]
    assert decisions == ["replay", "proceed"]
    asked = dict(log(on, lease.execution_id))["step.awaiting_approval"]
    assert (asked["rule_id"], asked["reason"]) == ("ask", "execution_token_budget_exceeded")


@scenario("parking")
def test_a_limit_comes_before_a_budget(on: Deployment) -> None:
    """A call beyond both is refused by its limit, and is no step (protocol.md 7.2 (14))."""
    limit = "rate_limit: {max_calls: 1, window: 1h}"
    rules(on, "model", f"{{decision: allow, budget: {{max_tokens: 50}}, {limit}}}")
    lease = start(on)
    perform(on, lease, call("model", kind="llm_call"), ANSWER)
    again = on.agent.submit(lease, call("model", kind="llm_call"))
    assert (again.decision, again.reason) == ("rate_limited", "rate_limit_exceeded")


def test_b35_only_model_calls_use_a_budget_up(on: Deployment) -> None:
    """A tool that talks of tokens spends none."""
    rules(on, "model", "{decision: allow, budget: {max_tokens: 50}}")
    lease = start(on)
    perform(on, lease, call("search"), ANSWER)
    assert on.agent.submit(lease, call("model", kind="llm_call")).decision == "proceed"


# -- policy tests


@scenario("policy tests")
def test_cases_are_tried_without_doing_anything(on: Deployment) -> None:
    """The bundle that is given, or the agent's own."""
    rules(on, "charge", "{decision: deny}")
    cases = [
        {"name": "one", "target": "charge", "args": {"cents": 1.50}, "expect": "deny"},
        {"target": "search", "expect": "deny", "expect_rule": "ask"},
        {"target": "search", "expect_rule": "ask"},
    ]
    report = on.operator.test_policy(AGENT, cases=cases)
    told = [(it.decision, it.rule_id, it.passed, it.failure) for it in report.results]
    assert told == [
        ("deny", "ask", True, ""),
        ("allow", "default", False, "allow, want deny"),
        ("allow", "default", False, "rule default, want ask"),
    ]
    assert (report.failed, report.results[0].name) == (2, "one")
    other = on.operator.test_policy(
        AGENT, "rules: [{id: new, then: {decision: allow}}]", cases=cases[:1]
    )
    assert other.results[0].failure == "allow, want deny"
    unused = on.operator.test_policy(AGENT, cases=[{"target": "search"}])
    assert unused.unexercised_rules == ["ask"]


@scenario("policy tests")
def test_past_calls_are_tried_again(on: Deployment) -> None:
    """Of one execution, or of the latest: they expect what was said of them."""
    rules(on, "charge", "{decision: deny}")
    lease = start(on)
    on.agent.submit(lease, call("charge", {"cents": 5}))
    on.agent.submit(lease, call("search"))
    report = on.operator.test_policy(AGENT, execution_id=lease.execution_id)
    told = [(it.target, it.expect, it.was_rule, it.passed) for it in report.results]
    assert told == [("charge", "deny", "ask", True), ("search", "allow", "default", True)]
    assert {it.execution_id for it in report.results} == {lease.execution_id}
    strict = "rules: [{id: no, when: {target: search}, then: {decision: deny}}]"
    report = on.operator.test_policy(AGENT, strict, execution_id=lease.execution_id)
    assert [it.failure for it in report.results] == ["", "deny, want allow"]


@scenario("policy tests")
def test_nothing_is_expected_where_no_policy_was_asked(on: Deployment) -> None:
    """Of a call that was refused because the outcome of its twin is unknown (protocol.md 11.10)."""
    rules(on, "charge", "{decision: allow}")
    lease = start(on)
    on.agent.submit(lease, once("charge"))
    later = next_attempt(on, lease)
    assert [on.agent.submit(later, once("charge")).decision for _ in range(2)] == [
        "replay",
        "denied",
    ]
    strict = "rules: [{id: no, when: {target: charge}, then: {decision: deny}}]"
    report = on.operator.test_policy(AGENT, strict, execution_id=lease.execution_id)
    told = {it.was_rule: (it.expect, it.passed) for it in report.results}
    assert told == {"ask": ("allow", False), "__indeterminate_retry": ("", True)}


@scenario("policy tests")
@scenario("alone")
def test_the_latest_executions_are_tried_again(on: Deployment) -> None:
    """The newest first, as many as are asked for."""
    rules(on, "charge", "{decision: deny}")
    leases = [start(on) for _ in range(3)]
    for number, lease in enumerate(leases):
        on.agent.submit(lease, call("charge", number))
    report = on.operator.test_policy(AGENT, executions={"limit": 2})
    assert [it.args for it in report.results] == [2, 1]
    since = on.operator.get(leases[2].execution_id).created_at
    report = on.operator.test_policy(AGENT, executions={"since": since})
    assert [it.args for it in report.results] in ([2], [2, 1, 0])  # A clock that stands still.


@scenario("policy tests")
@scenario("sessions")
def test_the_executions_of_a_session_are_tried_again(on: Deployment) -> None:
    """And no others."""
    rules(on, "charge", "{decision: deny}")
    for session in ("one", "other"):
        lease = attempt(on, on.operator.create(AGENT, session=session).id)
        on.agent.submit(lease, call("charge", session))
    report = on.operator.test_policy(AGENT, executions={"session": "one"})
    assert [it.args for it in report.results] == ["one"]


@scenario("policy tests")
@pytest.mark.parametrize(
    "case", [{}, {"target": ""}, {"target": "t", "kind": "tool"}, {"target": "t", "expect": "ok"}]
)
def test_a_case_that_says_nothing_is_refused(on: Deployment, case: dict[str, str]) -> None:
    """It is the author's mistake."""
    rules(on, "charge", "{decision: deny}")
    assert code_of(lambda: on.operator.test_policy(AGENT, cases=[case])) == "validation_error"


@scenario("policy tests")
def test_a_test_needs_a_bundle(on: Deployment) -> None:
    """The agent's own, or one that is given."""
    on.operator.set_policy(AGENT, "")
    tested = lambda: on.operator.test_policy(AGENT, cases=[{"target": "t"}])  # noqa: E731
    assert code_of(tested) == "validation_error"
