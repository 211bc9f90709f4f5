"""``Branching``: an operator's methods for forks, over HTTP (protocol.md 9.5)."""

from __future__ import annotations

import json
from urllib.parse import quote

from .asking import Asking
from .replies import understood
from .types import Execution, ForkPoints

__all__ = ["Branching"]


class Branching(Asking):
    """What ``Client`` says about forks."""

    def fork(
        self, execution_id: str, at_seq: int, session: str = "", policy_bundle: str = ""
    ) -> Execution:
        """Create an execution that begins with what was settled in another one (protocol.md 9.5).

        ``at_seq``: the last event of that one that counts. ``session``: a new session, in which
        the fork is the first. ``policy_bundle``: YAML that decides on the fork's new steps instead
        of its agent's policy; an API key needs ``policies:write`` for it. Raises
        ``NotFoundError``, ``ValidationError`` for a number that is no event's, ``ConflictError``
        for a session that has executions. It is not repeated when its answer is lost.
        """
        given = {"at_seq": at_seq, "session": session, "policy_bundle": policy_bundle}
        body = json.dumps({name: value for name, value in given.items() if value})
        answer = self._ask("POST", f"{_execution(execution_id)}/fork", body)
        return understood("an execution", lambda: Execution.model_validate(answer))

    def fork_points(self, execution_id: str) -> ForkPoints:
        """Where an execution can be forked, and what of its resources is captured when."""
        answer = self._ask("GET", f"{_execution(execution_id)}/fork-points")
        return understood("fork points", lambda: ForkPoints.model_validate(answer))


def _execution(execution_id: str) -> str:
    return f"/v0/executions/{quote(execution_id, safe='')}"
