"""The promises of each class of effect, checked each time that a process has died, and at the
end."""

from __future__ import annotations

from pathlib import Path

from support.effect_log import EffectLog
from support.histories import check_file, check_history

from rebuno_sync.kernel import Kernel
from rebuno_sync.types import Idempotency, Step

__all__ = ["Promises"]

INDETERMINATE = "indeterminate"


def label_of(step: Step) -> str:
    label: str = step.args["label"]
    return label


class Promises:
    """Watches one execution, whose effects take a ``label`` and leave a line under it in
    ``log``."""

    def __init__(
        self, db: Path, log: EffectLog, agent: str, key: str, *, by_webhook: bool = False
    ) -> None:
        self.db = db
        self.log = log
        self._agent = agent
        self._key = key
        self._by_webhook = by_webhook
        self._recorded: dict[str, int] = {}
        """Effects with a recorded outcome -> how often they had run by then."""
        self.cut_down: set[str] = set()
        """At-most-once effects in which a process has died."""

    @property
    def recorded(self) -> int:
        return len(self._recorded)

    def after_a_death(self) -> None:
        """Assert that nothing recorded has run again, and remember where things stand."""
        if not self.db.exists():
            return
        with Kernel(self.db) as kernel:
            execution = kernel.find(self._agent, self._key)
            if execution is None:
                assert self.log.lines() == []
                return
            steps = kernel.list_steps(execution.id)
            check_history(kernel, execution.id, by_webhook=self._by_webhook)
        self._look_at(steps)

    def _look_at(self, steps: list[Step]) -> None:
        for step in steps:
            label, runs = label_of(step), self.log.count(label_of(step))
            once = step.idempotency == Idempotency.AT_MOST_ONCE
            if once:
                assert runs <= 1, f"at_most_once {label} ran {runs} times"
            if step.status.terminal:
                before = self._recorded.setdefault(label, runs)
                assert runs == before, f"{label} ran again after it was recorded"
                assert runs or label in self.cut_down, f"{label} was recorded and never ran"
                for line in self.log.of(label):
                    assert step.completed_at is not None
                    assert line.at <= step.completed_at.timestamp() * 1e6 + 1
            elif once:
                self.cut_down.add(label)
        known = {label_of(step) for step in steps}
        assert {line.label for line in self.log.lines()} <= known, "ran before it was recorded"

    def at_the_end(self, labels: set[str]) -> dict[str, str]:
        """Assert what holds once the execution has completed; its output.

        ``labels``: every effect of the handler. The output is a report by label: the token of the
        run whose result counts, or the reason or type of the error that the handler saw.
        """
        with Kernel(self.db) as kernel:
            execution = kernel.find(self._agent, self._key)
            assert execution is not None
            assert execution.status == "completed"
            steps = kernel.list_steps(execution.id)
            check_history(kernel, execution.id, by_webhook=self._by_webhook)
        check_file(self.db)
        self._look_at(steps)
        output: dict[str, str] = execution.output
        assert {label_of(step) for step in steps} == labels == output.keys()
        for step in steps:
            self._check_what_the_handler_saw(step, output[label_of(step)])
        return output

    def _check_what_the_handler_saw(self, step: Step, seen: str) -> None:
        label = label_of(step)
        lines = self.log.of(label)
        if label in self.cut_down:
            assert step.error["reason"] == INDETERMINATE
            assert seen == INDETERMINATE, f"{label} was cut down but the handler saw {seen}"
            return
        assert lines, f"{label} is missing"
        if step.status == "succeeded":
            assert seen == lines[-1].token, f"{label}: not the result of its last run"
        else:
            assert seen == step.error["type"].rpartition(".")[2]
