"""``Policies``: setting the policies of agents, and trying them out (protocol.md 11.1, 11.10)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ..errors import APIError, api_error
from ..ports import Clock
from . import executions
from .policy import (
    INDETERMINATE_RETRY,
    Action,
    BundleInvalid,
    CaseInvalid,
    Report,
    TrialCase,
    try_out,
)
from .reading import read_on_time
from .ruling import usable
from .store import Connection, Store, registry, tables, waiting
from .store.rows import ExecutionRow

__all__ = ["Past", "Policies"]

_MOST_EXECUTIONS = 1000
_FEW_EXECUTIONS = 100

_DECISIONS = {
    "step.allowed": Action.ALLOW,
    "step.denied": Action.DENY,
    "step.awaiting_approval": Action.REQUIRE_APPROVAL,
}


class Past(NamedTuple):
    """Executions whose calls are tried, the newest first. ``since``: microseconds since 1970."""

    since: int = 0
    limit: int = _FEW_EXECUTIONS
    session: str = ""
    """Those of one session only; of all when it is empty."""


class Policies:
    """The bundles of agents. What they say of a step is asked in its transaction (``ruling``)."""

    def __init__(self, store: Callable[[], Store], clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def set(self, agent_id: str, bundle: str) -> None:
        """From the next new step on; an empty bundle allows everything."""
        check_bundle(bundle)
        known = self._store().write(
            lambda db: registry.set_policy_bundle(db, agent_id, bundle), durable=True
        )
        if not known:
            raise _unknown(agent_id)

    def test(
        self,
        agent_id: str,
        bundle: str,
        *,
        cases: Sequence[TrialCase],
        execution_id: str = "",
        past: Past | None = None,
    ) -> Report:
        """Try the calls of one execution, of ``past`` ones, or ``cases``; nothing is recorded.

        ``bundle``: the agent's own when it is empty.
        """

        def work(db: Connection) -> tuple[str | None, list[TrialCase]]:
            stored = registry.policy_bundle(db, agent_id)
            if execution_id:
                made = list(_calls(db, executions.get(db, execution_id)))
            elif past is not None:
                made = [call for row in _recent(db, agent_id, past) for call in _calls(db, row)]
            else:
                made = list(cases)
            return stored, made

        stored, made = read_on_time(self._store(), self._clock, work)
        if not bundle and stored is None:
            raise _unknown(agent_id)
        if not (bundle or stored):
            raise _refused(f"agent {agent_id!r} has no policy; give a bundle to try")
        try:
            return try_out(usable(bundle or stored or ""), agent_id, made)
        except BundleInvalid as error:
            raise api_error("validation_error", _invalid(error), 400) from error
        except CaseInvalid as error:
            raise _refused(str(error)) from error


def _recent(db: Connection, agent_id: str, past: Past) -> Iterator[ExecutionRow]:
    limit = min(past.limit, _MOST_EXECUTIONS) if past.limit > 0 else _FEW_EXECUTIONS
    for row in tables.executions(db, agent_id, "", "", limit, past.session):
        if row.created_at < past.since:
            return
        yield row


def _calls(db: Connection, row: ExecutionRow) -> Iterator[TrialCase]:
    """The calls that an execution made, with what was first said of each."""
    seen: set[str] = set()
    for step, kind, detail in waiting.decisions(db, row.n):
        if step.step_id in seen:
            continue
        seen.add(step.step_id)
        rule_id = json.loads(detail or "{}").get("rule_id", "")
        settled = rule_id != INDETERMINATE_RETRY.rule_id
        yield TrialCase(
            step.target,
            step.kind,
            step.args,
            agent_id=row.agent_id,
            expect=str(_DECISIONS[kind]) if settled else "",
            execution_id=row.id,
            step_id=step.step_id,
            was_rule=rule_id,
        )


def check_bundle(bundle: str) -> None:
    """Raise ``validation_error`` for a bundle that cannot be set; an empty one can."""
    if not bundle:
        return
    try:
        usable(bundle)
    except BundleInvalid as error:
        raise api_error(
            "validation_error", f"load policy bundle: {_invalid(error)}", 400
        ) from error


def _invalid(error: BundleInvalid) -> str:
    return f"validation error: invalid policy bundle: {error}"


def _refused(detail: str) -> APIError:
    return api_error("validation_error", f"validation error: {detail}", 400)


def _unknown(agent_id: str) -> APIError:
    return api_error("not_found", f"not found: agent {agent_id!r} is not registered", 404)
