"""The tries of one effect: one step, whatever their number (protocol.md 17, ``attempts``)."""

from __future__ import annotations

from collections.abc import Callable

from .clock import SYSTEM
from .nested import Results
from .outcomes import Ran
from .recording import Recording
from .retrying import RetryPolicy
from .types import StepDecision

__all__ = ["settled"]


def settled(
    met: StepDecision,
    policy: RetryPolicy,
    recording: Recording,
    wait: Callable[[float], None],
    once: Callable[[Results, int], Ran],
) -> Ran:
    """Try an effect until a try succeeds or is the last one; what came of that.

    ``met``: the decision that let it proceed, with the tries that failed in earlier attempts and
    the rest of their back-off. ``wait`` sleeps, and raises when the attempt is over. ``once``: one
    try, which is given the nested results of those before, and its number.
    """
    failed, rest = met.attempt, met.retry_in
    unmet = failed
    results = Results()
    if failed:
        wait(rest)
        recording.begin_try(met.step_id, failed + 1)
    while True:
        ran = once(results, failed + 1)
        if ran.failure is None:
            return ran
        repeats = unmet > 0 and results.only_met
        results = results.of_next_try()
        if repeats:
            # The nested failure that an earlier try died of was replayed: that is no new try.
            unmet -= 1
            continue
        failed += 1
        pause = policy.wait_after(failed, ran.error, SYSTEM.random())
        if pause is None:
            return ran
        recording.retrying(met.step_id, failed, ran.failure, pause)
        wait(pause)
        recording.begin_try(met.step_id, failed + 1)
