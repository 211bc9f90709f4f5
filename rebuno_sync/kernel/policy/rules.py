"""Rules, and which of them decides (protocol.md 11.4, 11.5)."""

from __future__ import annotations

from dataclasses import dataclass

from ...types import StepKind
from .arguments import Constraint, members_of, value_of
from .judge import NOT_CONFIGURED, Judge, Terms
from .patterns import Matcher
from .verdict import Action, Approvers, Budget, RateLimit, Verdict

__all__ = ["Policy", "Rule", "When"]

_LOCAL = Verdict(Action.ALLOW, "local", "local step")
_DEFAULT_ALLOW = Verdict(Action.ALLOW, "default", "default allow")
_DEFAULT_DENY = Verdict(Action.DENY, "default", "no explicit allow rule matched")


class Subject:
    """A call that is judged. Its arguments are parsed when a rule asks for them."""

    def __init__(self, agent_id: str, kind: str, target: str, args: str) -> None:
        self.agent_id = agent_id
        self.kind = kind
        self.target = target
        self.args = args
        self._members: dict[str, object] | None = None
        self._parsed = False

    def satisfies(self, arguments: tuple[tuple[str, Constraint], ...]) -> bool:
        """Whether every argument is there and is as it has to be."""
        if not self._parsed:
            self._members, self._parsed = members_of(self.args), True
        if self._members is None:
            return False
        for key, constraint in arguments:
            text = value_of(self._members, key)
            if text is None or not constraint.holds(text):
                return False
        return True


@dataclass(frozen=True, slots=True)
class When:
    """Whatever is given has to hold; without any it matches everything."""

    target: Matcher | None = None
    targets: tuple[Matcher, ...] = ()
    agent_id: str = ""
    agent_ids: tuple[str, ...] = ()
    step_kind: str = ""
    arguments: tuple[tuple[str, Constraint], ...] = ()

    def matches(self, call: Subject) -> bool:
        return (
            (not self.step_kind or self.step_kind == call.kind)
            and (not self.agent_id or self.agent_id == call.agent_id)
            and (not self.agent_ids or call.agent_id in self.agent_ids)
            and (self.target is None or self.target(call.target))
            and (not self.targets or any(glob(call.target) for glob in self.targets))
            and (not self.arguments or call.satisfies(self.arguments))
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """``action``: ``None`` leaves it to the judge."""

    id: str
    when: When
    action: Action | None
    reason: str
    terms: Terms
    approvers: Approvers
    rate_limit: RateLimit | None
    budget: Budget | None


@dataclass(frozen=True, slots=True)
class Policy:
    """A bundle, ready to decide."""

    rules: tuple[Rule, ...]
    allows_by_default: bool
    hash: str

    def evaluate(
        self, agent_id: str, kind: str, target: str, args: str, judge: Judge = NOT_CONFIGURED
    ) -> Verdict:
        """The first rule that matches, in the order of the document, or the default.

        ``args``: JSON text, whose numbers are compared as they are written.
        """
        call = Subject(agent_id, kind, target, args)
        for rule in self.rules:
            if rule.when.matches(call):
                return self._ruled(rule, call, judge)
        if kind == StepKind.LOCAL:
            return _LOCAL._replace(policy_hash=self.hash)
        verdict = _DEFAULT_ALLOW if self.allows_by_default else _DEFAULT_DENY
        return verdict._replace(policy_hash=self.hash)

    def _ruled(self, rule: Rule, call: Subject, judge: Judge) -> Verdict:
        action, reason = rule.action, rule.reason
        if action is None:
            action, reason = judge(call.agent_id, call.target, call.args, rule.terms)
        return Verdict(
            action,
            rule.id,
            reason,
            rule.approvers,
            rule.rate_limit,
            rule.budget,
            self.hash,
        )
