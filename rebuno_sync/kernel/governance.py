"""``Governance``: an operator's methods for policies and approvals, of a kernel in process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ..codec import PLAIN
from ..errors import api_error
from ..types import Approval, PolicyReport, StepKind
from .core import Core
from .policies import Past
from .policy import TrialCase
from .views import approval_view, report_view

__all__ = ["Governance"]


class Governance:
    """What ``Kernel`` says about what agents may do."""

    core: Core

    # -- policies

    def set_policy(self, agent_id: str, bundle: str) -> None:
        """Set the policy of a registered agent; it counts from its next new step on.

        ``bundle``: YAML (protocol.md 11.2); an empty text removes it, which allows everything.
        Raises ``ValidationError`` naming the line where it is wrong, ``NotFoundError`` for an
        unknown agent. Needs the extra ``kernel``.
        """
        self.core.policies.set(agent_id, bundle)

    def test_policy(
        self,
        agent_id: str,
        bundle: str = "",
        *,
        cases: Sequence[Mapping[str, Any]] = (),
        execution_id: str = "",
        executions: Mapping[str, Any] | None = None,
    ) -> PolicyReport:
        """What a policy would say of calls, without making any (protocol.md 11.10).

        ``bundle``: the agent's own unless given. ``cases``: calls as mappings of ``target``,
        ``args``, ``kind``, ``agent_id``, ``name`` and what is expected, ``expect`` and
        ``expect_rule``. ``execution_id``: the calls that this execution made, expecting what was
        said of them. ``executions``: those of past ones, the newest first, at most ``limit`` (100),
        not created before ``since`` (a datetime), of one ``session``. Raises ``ValidationError``.
        """
        return report_view(
            self.core.policies.test(
                agent_id,
                bundle,
                cases=[_case(case, number) for number, case in enumerate(cases, 1)],
                execution_id=execution_id,
                past=None if executions is None else _past(executions),
            )
        )

    # -- approvals

    def list_approvals(self, status: str = "pending") -> list[Approval]:
        """The approvals with that status, the oldest first."""
        return [approval_view(row) for row in self.core.records.approvals(status)]

    def get_approval(self, approval_id: str) -> Approval:
        """One approval; ``NotFoundError`` when there is none."""
        return approval_view(self.core.records.approval(approval_id))

    def grant_approval(self, approval_id: str, decided_by: str = "", rationale: str = "") -> None:
        """Let the step run; its execution goes on when nothing else is waited for.

        ``decided_by``: who decides, one of the approvers where the policy names some. Raises
        ``ConflictError``, which says who decided and when, if it was decided already, and
        ``ForbiddenError`` for somebody who is no approver (protocol.md 12).
        """
        self.core.records.decide(approval_id, decided_by, rationale, granted=True)

    def deny_approval(self, approval_id: str, decided_by: str = "", rationale: str = "") -> None:
        """Refuse the step: the handler is told ``rationale``, or else ``approval_denied``.

        Raises as ``grant_approval`` does.
        """
        self.core.records.decide(approval_id, decided_by, rationale, granted=False)


_CASE = frozenset({"name", "agent_id", "kind", "target", "args", "expect", "expect_rule"})
_PAST = frozenset({"since", "limit", "session"})


def _case(case: Mapping[str, Any], number: int) -> TrialCase:
    _check_keys(case, _CASE, f"case {number}")
    texts = {name: str(case.get(name) or "") for name in _CASE - {"args", "kind"}}
    args = PLAIN.encode(case.get("args"), f"cases[{number - 1}].args")
    return TrialCase(kind=str(case.get("kind") or StepKind.TOOL_CALL), args=args, **texts)


def _past(executions: Mapping[str, Any]) -> Past:
    _check_keys(executions, _PAST, "executions")
    since = executions.get("since")
    if isinstance(since, str):
        since = datetime.fromisoformat(since)
    seconds = since.timestamp() if since else 0.0
    limit, session = int(executions.get("limit") or 0), str(executions.get("session") or "")
    return Past(round(seconds * 1_000_000), limit, session)


def _check_keys(given: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    for key in given:
        if key not in known:
            known_ones = ", ".join(sorted(known))
            message = f"validation error: {what}: unknown key {key!r}; known are {known_ones}"
            raise api_error("validation_error", message, 400)
