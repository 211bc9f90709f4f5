"""What one execution of a served handler must have done, and what was recorded of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

from crash.promises import INDETERMINATE, Promises
from support.effect_log import EffectLog
from support.histories import all_events

from rebuno_sync.kernel import Kernel
from rebuno_sync.types import Execution

__all__ = ["Account", "account_for"]


class Account(NamedTuple):
    """One execution that has kept every promise."""

    output: dict[str, str]
    cut_down: int
    """At-most-once effects whose outcome is unknown."""
    repeats: int
    """How often bodies of effects that were not recorded yet have run again."""
    attempts: int


def account_for(db: Path, logs: Path, execution: Execution, labels: set[str]) -> Account:
    """Assert every promise of an execution that has completed with these effects."""
    log = EffectLog(logs / execution.id)
    with Kernel(db) as kernel:
        steps = kernel.list_steps(execution.id)
        events = all_events(kernel, execution.id)
    key = execution.idempotency_key
    promises = Promises(db, log, execution.agent_id, key, by_webhook=True)
    for step in steps:
        if step.error and step.error.get("reason") == INDETERMINATE:
            assert step.idempotency == "at_most_once"
            promises.cut_down.add(step.args["label"])
    output = promises.at_the_end(labels)
    runs = Counter(line.label for line in log.lines())
    attempts = max(e.payload["attempt"] for e in events if "attempt" in e.payload)
    assert attempts > 1 or not promises.cut_down, "cut down, and no attempt of it has died"
    return Account(output, len(promises.cut_down), sum(n - 1 for n in runs.values()), attempts)
