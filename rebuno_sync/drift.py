"""Drift: recorded steps that changed code does not meet again, found at the first new step."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Sequence
from typing import NoReturn

from .errors import Interrupted, RebunoError
from .history import History
from .types import Idempotency, Proposal, Recorded, Step, StepKind

__all__ = ["PATCHED", "Drift", "is_patch"]

_log = logging.getLogger(__name__)

PATCHED = "patched"
"""The target of the steps that ``patched`` records. An answer that nobody asks for any more is no
drift: that is how a patch is removed."""


def is_patch(call: Proposal | Recorded) -> bool:
    """Whether it is an answer of ``patched``: of the whole execution, whichever body asked."""
    return call.kind == StepKind.LOCAL and call.target == PATCHED


_STRICT_PATIENCE_SECONDS = 2.0
_PATIENCE_SECONDS = 0.1
"""For threads that may still meet what seems to be missing."""
_MOST_NAMED = 10
_LONGEST_ARGUMENTS = 200


class Drift:
    """Compares what an attempt does with what earlier ones recorded. Reports once.

    ``list_steps``: the recorded steps with their arguments. ``strict``: whether the attempt stops
    before its first new step when recorded ones remain unmet.
    """

    def __init__(
        self,
        execution_id: str,
        history: History,
        list_steps: Callable[[], list[Step]],
        *,
        strict: bool,
    ) -> None:
        self._execution_id = execution_id
        self._history = history
        self._list_steps = list_steps
        self._strict = strict
        self._patience = _STRICT_PATIENCE_SECONDS if strict else _PATIENCE_SECONDS
        self._judged = False

    def judge(self, new: Proposal, around: Collection[str], *, counted: bool) -> None:
        """Judge at a new step.

        Other threads of the handler may not have got there yet. They are waited for shortly;
        while one still runs, a strict attempt stops and another is judged at a later step.
        """
        if self._judged:
            return
        if not self._missing(around):
            self._judged = True
            return
        alone = self._history.wait_for_others(self._patience, counted=counted)
        if not self._strict:
            self._patience = 0.0
        missing = self._missing(around)
        if missing and self._strict:
            self._stop(missing, new)
        self._judged = alone or not missing
        if self._judged and missing:
            self._report(missing, f"before its first new step, {_new(new)}")

    def at_end(self) -> None:
        """The handler has returned: what it has not met by now it never will."""
        if not self._judged and self._history.left:
            self._judged = True
            if missing := self._missing(()):
                self._report(missing, "when it returned")

    def _missing(self, around: Collection[str]) -> list[Recorded]:
        return [step for step in self._history.unmet(around) if _counts(step)]

    def _report(self, missing: Sequence[Recorded], when: str) -> None:
        _log.warning(
            "execution %s has not met %d of its recorded steps %s: %s. Has the handler's code"
            " changed since? Their results are not used, and their effects may be repeated under"
            " another name; patched() lets old executions keep the old way",
            self._execution_id,
            len(missing),
            when,
            self._named(missing),
        )

    def _stop(self, missing: Sequence[Recorded], new: Proposal) -> NoReturn:
        raise Interrupted(
            f"execution {self._execution_id} was stopped before its first new step,"
            f" {_new(new)}: {len(missing)} of its recorded steps were not met"
            f" again: {self._named(missing)}. Undo the change, or keep the old way for old"
            " executions with patched(), and it goes on where it was",
            code_changed=True,
        )

    def _named(self, missing: Sequence[Recorded]) -> str:
        try:
            steps = {step.step_id: step for step in self._list_steps()}
        except RebunoError:  # Then without their arguments.
            steps = {}
        told = [_told(it, steps.get(it.step_id)) for it in missing[:_MOST_NAMED]]
        more = len(missing) - _MOST_NAMED
        return ", ".join([*told, *([f"and {more} more"] if more > 0 else [])])


def _counts(step: Recorded) -> bool:
    """Whether leaving out the step means something: it has an outcome, or may have taken effect."""
    if is_patch(step):
        return False
    return step.settled or step.idempotency == Idempotency.AT_MOST_ONCE


def _told(missing: Recorded, step: Step | None) -> str:
    if step is None:
        return f"{missing.kind} {missing.target}"
    return f"{step.kind} {step.target} {_arguments(step.args)}"


def _new(proposal: Proposal) -> str:
    return f"{proposal.kind} {proposal.target} {_arguments(json.loads(proposal.args or 'null'))}"


def _arguments(args: object) -> str:
    arguments = json.dumps(args, ensure_ascii=False)
    if len(arguments) > _LONGEST_ARGUMENTS:
        arguments = arguments[:_LONGEST_ARGUMENTS] + "…"
    return arguments
