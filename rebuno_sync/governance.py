"""``Governance``: an operator's methods for policies and approvals, over HTTP (protocol.md 2.3)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from .asking import Asking
from .codec import PLAIN
from .replies import understood
from .types import Approval, PolicyReport

__all__ = ["Governance"]


class Governance(Asking):
    """What ``Client`` says about what agents may do."""

    # -- policies

    def set_policy(self, agent_id: str, bundle: str) -> None:
        """Set the policy of a registered agent; it counts from its next new step on.

        ``bundle``: YAML (protocol.md 11.2); an empty text removes it, which allows everything.
        Raises ``ValidationError`` where it is wrong, ``NotFoundError`` for an unknown agent.
        """
        body = json.dumps({"bundle": bundle})
        self._ask("POST", _policy(agent_id), body, repeatable=True)

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
        past = dict(executions) if executions is not None else None
        if past is not None and isinstance(past.get("since"), datetime):
            past["since"] = past["since"].astimezone().isoformat()
        given: dict[str, Any] = {
            "bundle": bundle,
            "cases": list(map(dict, cases)),
            "execution_id": execution_id,
            "executions": past,
        }
        given = {name: value for name, value in given.items() if value or value == {}}
        body = PLAIN.encode(given, "test_policy")
        answer = self._ask("POST", _policy(agent_id) + "/test", body, repeatable=True)
        return understood("a policy report", lambda: PolicyReport.model_validate(answer))

    # -- approvals

    def list_approvals(self, status: str = "pending") -> list[Approval]:
        """The approvals that wait for a decision, the oldest first. The embedded kernel lists
        those of another ``status`` as well."""
        answer = self._ask("GET", "/v0/approvals", query={"status": status})
        return understood("approvals", lambda: [Approval.model_validate(it) for it in answer or ()])

    def get_approval(self, approval_id: str) -> Approval:
        """One approval."""
        answer = self._ask("GET", _approval(approval_id))
        return understood("an approval", lambda: Approval.model_validate(answer))

    def grant_approval(self, approval_id: str, decided_by: str = "", rationale: str = "") -> None:
        """Let the step run; its execution goes on when nothing else is waited for.

        ``decided_by``: who decides, one of the approvers where the policy names some. Raises
        ``ConflictError`` if it was decided already, and ``ForbiddenError`` for somebody who is no
        approver (protocol.md 12). It is not repeated when its answer is lost.
        """
        self._decide(approval_id, "grant", decided_by, rationale)

    def deny_approval(self, approval_id: str, decided_by: str = "", rationale: str = "") -> None:
        """Refuse the step: the handler is told ``rationale``, or else ``approval_denied``.

        Raises as ``grant_approval`` does.
        """
        self._decide(approval_id, "deny", decided_by, rationale)

    def _decide(self, approval_id: str, word: str, decided_by: str, rationale: str) -> None:
        said = {"decided_by": decided_by, "rationale": rationale}
        body = json.dumps({name: text for name, text in said.items() if text})
        self._ask("POST", f"{_approval(approval_id)}/{word}", body)


def _policy(agent_id: str) -> str:
    return f"/v0/policies/{quote(agent_id, safe='')}"


def _approval(approval_id: str) -> str:
    return f"/v0/approvals/{quote(approval_id, safe='')}"
