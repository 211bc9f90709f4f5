"""Bundles: a policy as its author writes it, checked when it is set (protocol.md 11.2 to 11.4)."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import TypeVar

from . import patterns
from .arguments import Constraint
from .document import Members, Node, read_document
from .judge import Terms
from .rules import Policy, Rule, When
from .verdict import Action, Approvers, Budget, RateLimit

__all__ = ["compiled"]

T = TypeVar("T")

_BUNDLE = ("default_action", "rules")
_RULE = ("id", "when", "then")
_WHEN = ("target", "targets", "agent_id", "agent_ids", "step_kind", "arguments")
_THEN = ("decision", "reason", "approval_config", "rate_limit", "budget", "judge")
_CONSTRAINT = ("equals", "contains", "one_of", "regex")
_APPROVAL = ("approvers", "timeout", "message")
_RATE_LIMIT = ("max_calls", "window", "per_what", "max_wait", "on_limiter_error")
_BUDGET = ("max_tokens", "scope", "on_exceed")
_JUDGE = ("instructions", "threshold", "fallback")

_OF_ANOTHER_TIME = {
    "priority": "rules are tried in the order in which they stand: sort them by their priority, the"
    " lowest number first, and leave it out. '*' in a glob matches '/' now, and arguments are"
    " compared as they are written (1000000, not 1e+06)"
}

_ACTIONS = tuple(map(str, Action))
_JUDGED = "judge"


@lru_cache(maxsize=64)
def compiled(text: str) -> Policy:
    """The policy that a bundle describes. Raises ``BundleInvalid`` naming the line, and
    ``ImportError`` where the extra ``kernel`` is missing."""
    bundle = read_document(text).members(_BUNDLE)
    rules: dict[str, Rule] = {}
    listed = bundle.get("rules")
    for node in listed.items() if listed is not None else ():
        rule = _rule(node)
        if rule.id in rules:
            node.fail(f"another rule has the id {rule.id!r}")
        rules[rule.id] = rule
    return Policy(
        tuple(rules.values()),
        allows_by_default=bundle.word("default_action", "deny", "allow", "deny") == "allow",
        hash=sha256(text.encode()).hexdigest(),
    )


def _rule(node: Node) -> Rule:
    rule = node.members(_RULE, _OF_ANOTHER_TIME)
    rule_id = rule.text("id")
    if not rule_id:
        node.fail("a rule needs an id")
    when, then = rule.get("when"), rule.get("then")
    if then is None:
        node.fail(f"rule {rule_id!r} has no 'then'")
    return _then(then, rule_id, When() if when is None else _when(when))


# -- when


def _when(node: Node) -> When:
    when = node.members(_WHEN)
    target, arguments = when.get("target"), when.get("arguments")
    targets = when.get("targets")
    return When(
        target=_glob(target) if target is not None and target.text() else None,
        targets=() if targets is None else tuple(map(_glob, targets.items())),
        agent_id=when.text("agent_id"),
        agent_ids=when.texts("agent_ids"),
        step_kind=when.text("step_kind"),
        arguments=() if arguments is None else _arguments(arguments),
    )


def _glob(node: Node) -> patterns.Matcher:
    try:
        return patterns.matches_glob(node.text())
    except patterns.PatternInvalid as error:
        node.fail(str(error))


def _arguments(node: Node) -> tuple[tuple[str, Constraint], ...]:
    return tuple((key, _constraint(value)) for key, value in node.named().items())


def _constraint(node: Node) -> Constraint:
    given = node.members(_CONSTRAINT)
    regex = given.get("regex")
    constraint = Constraint(
        given.text("equals"),
        given.text("contains"),
        given.texts("one_of"),
        _regex(regex) if regex is not None and regex.text() else None,
    )
    if constraint == Constraint():
        node.fail(f"says nothing; give one of {', '.join(_CONSTRAINT)}")
    return constraint


def _regex(node: Node) -> patterns.Matcher:
    try:
        return patterns.searches(node.text())
    except patterns.PatternInvalid as error:
        node.fail(str(error))


# -- then


def _then(node: Node, rule_id: str, when: When) -> Rule:
    then = node.members(_THEN)
    decision = then.get("decision")
    if decision is None:
        node.fail("a decision is missing")
    word = decision.word(*_ACTIONS, _JUDGED)
    judge, limit, budget = then.get("judge"), then.get("rate_limit"), then.get("budget")
    if judge is not None and word != _JUDGED:
        judge.fail("needs 'decision: judge'")
    asked = then.get("approval_config")
    return Rule(
        rule_id,
        when,
        None if word == _JUDGED else Action(word),
        then.text("reason"),
        Terms() if judge is None else _terms(judge.members(_JUDGE)),
        Approvers() if asked is None else _approvers(asked.members(_APPROVAL)),
        None if limit is None else _rate_limit(limit.members(_RATE_LIMIT)),
        None if budget is None else _budget(budget.members(_BUDGET)),
    )


def _approvers(given: Members) -> Approvers:
    names = given.texts("approvers")
    if not all(names):
        given.nodes["approvers"].fail("an approver needs a name")
    return Approvers(names, given.duration("timeout"), given.text("message"))


def _rate_limit(given: Members) -> RateLimit:
    given.word("on_limiter_error", "allow", "allow", "deny")  # A bucket in the file has no errors.
    return RateLimit(
        given.whole_number("max_calls"),
        given.duration("window"),
        given.word("per_what", "execution", "execution", "session", "agent", "global"),
        given.duration("max_wait"),
    )


def _budget(given: Members) -> Budget:
    return Budget(
        given.whole_number("max_tokens"),
        given.word("scope", "execution", "execution", "session"),
        Action(given.word("on_exceed", "deny", "deny", "require_approval")),
    )


def _terms(given: Members) -> Terms:
    threshold = given.get("threshold")
    share = Terms().threshold if threshold is None else threshold.number()
    if threshold is not None and not 0 <= share <= 1:
        threshold.fail(f"must be from 0 to 1, not {share}")
    fallback = given.word("fallback", Terms().fallback, *_ACTIONS)
    return Terms(given.text("instructions"), share, Action(fallback))
