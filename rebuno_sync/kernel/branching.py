"""``Branching``: an operator's and a host's methods for forks, of a kernel in process."""

from __future__ import annotations

import threading

from ..types import Execution, ForkPoints
from .claiming import Claiming
from .core import Core
from .dispatches import Claim
from .forks import Fork
from .moment import Moment
from .store import Connection
from .store.rows import ExecutionRow
from .views import execution_view, points_view

__all__ = ["Branching"]


class Branching:
    """What ``Kernel`` says about forks."""

    core: Core

    def fork(
        self, execution_id: str, at_seq: int, session: str = "", policy_bundle: str = ""
    ) -> Execution:
        """Create an execution that begins with what was settled in another one (protocol.md 9.5).

        ``at_seq``: the last event of that one that counts. ``session``: a new session, in which
        the fork is the first. ``policy_bundle``: YAML that decides on the fork's new steps instead
        of its agent's policy. Raises ``NotFoundError``, ``ValidationError`` for a number that is
        no event's, ``ConflictError`` for a session that has executions.
        """
        fork = Fork(at_seq, session or None, policy_bundle)
        row, restoration = self.core.forking.fork(execution_id, fork)
        return execution_view(row).model_copy(update={"restoration": restoration})

    def fork_points(self, execution_id: str) -> ForkPoints:
        """Where an execution can be forked, and what of its resources is captured when."""
        return points_view(self.core.forking.points(execution_id))

    # -- for hosts of a handler

    def retry(
        self,
        agent_id: str,
        idempotency_key: str,
        failed_id: str,
        *,
        holder: threading.Thread | None = None,
    ) -> tuple[Execution, Claim | None]:
        """Fork the failed execution that has the key, give the fork the key, and claim it.

        Where another one has the key by now, that is what is found: of all who retry a failure,
        one forks.
        """
        now = Moment.of(self.core.clock)
        retry = self.core.forking.retry(agent_id, idempotency_key, failed_id, now)
        claim = self._claiming(now, holder)

        def work(db: Connection) -> tuple[ExecutionRow, Claim | None]:
            row = retry(db)
            return row, claim(row.id, db)

        row, claimed = claim.committed(work)
        return execution_view(row), claimed

    def _claiming(self, now: Moment, holder: threading.Thread | None) -> Claiming:
        raise NotImplementedError
