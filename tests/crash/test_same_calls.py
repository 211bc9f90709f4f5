"""Identical calls on several threads, killed in the middle: each result goes to its own call."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.children import ChildScript
from support.effect_log import EffectLog

from rebuno_sync.kernel import Kernel
from rebuno_sync.types import Step

PROGRAM = Path(__file__).parent / "programs" / "same_calls.py"
AGENT = "same-calls"
QUERIES = ["cats", "dogs", "cats", "birds"]
AT_ONCE = 50
"""Executions in one process. One of them alone would show as much, more slowly."""


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("spread", ["parallel", "map"])
def test_c5_killed_after_two_results_each_call_has_its_own(
    tmp_path: Path, spread: str, batch: int
) -> None:
    """A hundred executions for each way: the two never run again, and are where they belong."""
    db, log = tmp_path / "kernel.db", EffectLog(tmp_path / "log")
    script = ChildScript(PROGRAM, tmp_path, db=db, log=log.path, spread=spread, executions=AT_ONCE)
    with script.start(permits=2) as child:
        child.hears("two results each", 60)
        child.kill()
    before = recorded(db)
    assert all(len(results) == 2 for results in before.values())
    outputs = script.run(permits=4, seconds=60)
    after = recorded(db)
    assert len(outputs) == len(after) == AT_ONCE
    for key, results in after.items():
        assert before[key].items() <= results.items()
        # The occurrence of a call is how many of its kind were submitted before it.
        assert outputs[key] == [
            results[query, QUERIES[:index].count(query)] for index, query in enumerate(QUERIES)
        ]
    ran = [line.label for line in log.lines()]
    assert len(ran) == len(set(ran)) == AT_ONCE * len(QUERIES)


def recorded(db: Path) -> dict[str, dict[tuple[str, int], str]]:
    """By key, the results of each call that has one."""
    with Kernel(db) as kernel:
        return {
            execution.idempotency_key or "": results(kernel.list_steps(execution.id))
            for execution in kernel.list(agent_id=AGENT, limit=200).executions
        }


def results(steps: list[Step]) -> dict[tuple[str, int], str]:
    return {
        (step.args["query"], step.occurrence): step.result
        for step in steps
        if step.status == "succeeded"
    }
