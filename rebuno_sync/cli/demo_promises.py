"""What the demo promises, held against what was seen. Pure: evidence in, verdicts out."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .demo_bodies import Body

__all__ = ["Attempt", "Effect", "Evidence", "Promise", "count", "judge"]


@dataclass(frozen=True)
class Effect:
    """One effect of one attempt. ``how``: ``ran`` or ``replayed``; ``value``: a digest."""

    step_id: str
    call: str
    target: str
    how: str
    value: str


@dataclass(frozen=True)
class Attempt:
    """One process. ``in_flight``: the target of the effect that had begun and not ended."""

    exit_code: int
    effects: tuple[Effect, ...]
    bodies: tuple[Body, ...]
    output: Any = None
    in_flight: str = ""

    @property
    def cut_down(self) -> Counter[str]:
        """The calls whose body began and whose result was not recorded."""
        recorded = Counter(effect.call for effect in self.effects if effect.how == "ran")
        return Counter(body.call for body in self.bodies) - recorded


@dataclass(frozen=True)
class Evidence:
    """All that was seen. ``requests`` and ``undisturbed``: ``None`` with somebody else's provider.

    ``model``: the name of the one that was asked, which is the target of these effects.
    ``events``: each event's type and, for a step's, its step id. ``reports``: what was written,
    by the first two processes and by the undisturbed one, without its first line (a time).
    """

    killed: Attempt
    resumed: Attempt
    undisturbed: Attempt | None
    model: str
    requests: int | None
    events: tuple[tuple[str, str], ...]
    reports: tuple[str, ...]


@dataclass(frozen=True)
class Promise:
    """One sentence, and what was seen instead when it was not kept."""

    text: str
    broken: str = ""

    @property
    def kept(self) -> bool:
        return not self.broken


def judge(evidence: Evidence) -> list[Promise]:
    """Every promise that this evidence can be held against."""
    verdicts = (check(evidence) for check in _CHECKS)
    return [verdict for verdict in verdicts if verdict is not None]


def _was_killed(seen: Evidence) -> Promise:
    done = len(seen.killed.effects)
    text = f"The first process was ended by SIGKILL, {count(done, 'effect')} in."
    if seen.killed.exit_code != -signal.SIGKILL:
        return Promise(text, f"its exit code was {seen.killed.exit_code}")
    if not done or not 0 < done < len(seen.resumed.effects):
        return Promise(text, f"that was not half way of {len(seen.resumed.effects)}")
    # Somebody else's provider cannot be told to wait for the kill.
    cut = seen.killed.in_flight or seen.requests is None
    return Promise(text, "" if cut else "no effect was in flight")


def _replayed_first(seen: Evidence) -> Promise:
    text = "The second one replayed these, with the same values, before it ran anything."
    if seen.resumed.exit_code:
        return Promise(text, f"its exit code was {seen.resumed.exit_code}")
    before = [(effect.step_id, effect.value) for effect in seen.killed.effects]
    replayed = [e for e in seen.resumed.effects if e.how == "replayed"]
    begin = seen.resumed.effects[: len(replayed)]
    if [e.how for e in begin] != ["replayed"] * len(replayed):
        return Promise(text, "an effect ran before all had been replayed")
    if [effect.step_id for effect in replayed] != [step_id for step_id, _ in before]:
        return Promise(text, f"{len(replayed)} were replayed, not the {len(before)} that had run")
    other = [e.target for e, (_, value) in zip(replayed, before, strict=True) if e.value != value]
    return Promise(text, f"another value was replayed for {', '.join(other)}" if other else "")


def _ran_once(seen: Evidence) -> Promise:
    cut = seen.killed.cut_down
    again = {body.target for body in seen.killed.bodies if body.call in cut}
    text = "Every body ran once" + (
        f", but {', '.join(sorted(again))}, which the kill cut down: safe_to_retry, so twice."
        if again
        else "."
    )
    if cut.total() > 1 or again - {seen.killed.in_flight}:
        return Promise(text, f"results of {', '.join(sorted(again))} were not recorded")
    if seen.resumed.cut_down:
        return Promise(text, "the second process did not record each result")
    wanted = Counter(effect.call for effect in seen.resumed.effects) + cut
    ran = Counter(body.call for body in (*seen.killed.bodies, *seen.resumed.bodies))
    if ran == wanted:
        return Promise(text)
    names = {call.partition(":")[0] for call in (ran - wanted) + (wanted - ran)}
    return Promise(
        text, f"{ran.total()} bodies ran, not {wanted.total()}: see {', '.join(sorted(names))}"
    )


def _at_most_once(seen: Evidence) -> Promise:
    bodies = (*seen.killed.bodies, *seen.resumed.bodies)
    times = sum(body.target == "write_report" for body in bodies)
    text = "write_report, which is at_most_once, ran once, and its file is there."
    if times != 1:
        return Promise(text, f"it ran {times} times")
    return Promise(text, "" if seen.reports and seen.reports[0] else "the file is missing or empty")


def _provider_agrees(seen: Evidence) -> Promise | None:
    if seen.requests is None:
        return None
    undisturbed = seen.undisturbed.bodies if seen.undisturbed else ()
    bodies = (*seen.killed.bodies, *seen.resumed.bodies, *undisturbed)
    asked = sum(body.target == seen.model for body in bodies)
    text = f"The provider was asked {asked} times, as often as a call left a process."
    return Promise(text, "" if seen.requests == asked else f"it counted {seen.requests}")


def _same_as_undisturbed(seen: Evidence) -> Promise | None:
    other = seen.undisturbed
    if other is None:
        return None
    text = "Answer and report are those of a third process that nobody disturbed."
    if other.exit_code:
        return Promise(text, f"its exit code was {other.exit_code}")
    if other.output is None or seen.resumed.output != other.output:
        return Promise(text, "its answer was another one")
    if len(set(seen.reports)) != 1 or len(seen.reports) != 2:
        return Promise(text, "its report was another one")
    steps = len(other.effects), len(seen.resumed.effects)
    return Promise(
        text, "" if steps[0] == steps[1] else f"it had {steps[0]} effects, not {steps[1]}"
    )


def _log_agrees(seen: Evidence) -> Promise:
    text = "The event log has two attempts, one success for each effect, and one completion."
    types = Counter(kind for kind, _ in seen.events)
    succeeded = Counter(step_id for kind, step_id in seen.events if kind == "step.succeeded")
    wanted = Counter(effect.step_id for effect in seen.resumed.effects)
    if types["dispatch.acked"] != 2:
        return Promise(text, f"{types['dispatch.acked']} attempts")
    if succeeded != wanted:
        return Promise(text, f"{succeeded.total()} successes of {wanted.total()} effects")
    if types["step.failed"] or types["execution.completed"] != 1:
        return Promise(text, f"{types['step.failed']} failures")
    return Promise(text)


_CHECKS: tuple[Callable[[Evidence], Promise | None], ...] = (
    _was_killed,
    _replayed_first,
    _ran_once,
    _at_most_once,
    _provider_agrees,
    _same_as_undisturbed,
    _log_agrees,
)


def count(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
