"""The process that the demo kills: ``run`` on the embedded kernel, told line by line on stdout.

Its one argument is ``Settings`` as JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import rebuno_sync as rebuno

from ..clock import SYSTEM
from ..kernel import Kernel
from ..kernel.agent_port import AgentPort
from ..types import DecisionKind, LeaseKey, Proposal, StepDecision
from .demo_agent import handler
from .demo_bodies import Ledger, call_of, write_in

__all__ = ["AGENT", "Settings", "main"]

AGENT = "demo"
_LONGEST_ARGUMENT = 100
_TELLING = {"path", "text", "passages"}
"""The arguments in which the calls of the handler differ."""

Tell = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Settings:
    """What one attempt is told. ``attempt`` names it in the ledger; ``pace`` is in seconds."""

    attempt: str
    database: str
    ledger: str
    key: str
    pace: float
    input: dict[str, Any]


def tell(message: dict[str, Any]) -> None:
    """One line to the demo; without the demo there is nothing to go on for."""
    try:
        # Unbuffered: what was told before a SIGKILL arrives.
        os.write(1, json.dumps(message).encode() + b"\n")
    except BrokenPipeError:
        raise SystemExit(1) from None


class _Watch(AgentPort):
    """The kernel's port for agents, telling what goes through it."""

    def submit(self, lease: LeaseKey, proposal: Proposal) -> StepDecision:
        began = SYSTEM.monotonic()
        decision = super().submit(lease, proposal)
        replayed = decision.decision == DecisionKind.REPLAY
        tell(
            {
                "is": "replayed" if replayed else "begun",
                "step_id": decision.step_id,
                "target": proposal.target,
                "call": call_of(proposal.target, proposal.args),
                "args": excerpt(json.loads(proposal.args)),
                "value": _digest(decision.result_json),
                "at": began,
                "seconds": SYSTEM.monotonic() - began,
            }
        )
        return decision

    def complete_step(self, lease: LeaseKey, step_id: str, result: str) -> StepDecision:
        decision = super().complete_step(lease, step_id, result)
        tell({"is": "ran", "value": _digest(result), "at": SYSTEM.monotonic()})
        return decision


class _WatchedKernel(Kernel):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.agent = _Watch(self._store, SYSTEM, self.core.records, self.core.deltas)


def excerpt(args: dict[str, Any]) -> str:
    """A call's arguments for people: paths by their last part, the rest cut short."""
    shown = []
    for name in sorted(args, key=lambda name: (name not in _TELLING, name)):
        value = args[name]
        if name == "messages":  # Instructions and question are always the same.
            name, value = "passages", value[-1]["content"].partition("\n\n")[2]
        text = Path(value).name if name == "path" else json.dumps(value, ensure_ascii=False)
        shown.append(f"{name}={text}"[:_LONGEST_ARGUMENT])
    return ", ".join(shown)


def _digest(text: str | None) -> str:
    return hashlib.sha256((text or "").encode()).hexdigest()[:16]


def main(settings: Settings) -> int:
    """Run the handler and tell how it ended."""
    write_in(
        Ledger(
            Path(settings.ledger),
            settings.attempt,
            settings.pace,
            lambda target: tell({"is": "body", "target": target}),
        )
    )
    try:
        with _WatchedKernel(settings.database) as kernel:
            answer = rebuno.run(
                handler, settings.input, key=settings.key, agent=AGENT, kernel=kernel
            )
    except rebuno.RebunoError as error:
        tell({"is": "failed", "reason": str(error)[:1000]})
        return 1
    print(json.dumps({"is": "output", "output": asdict(answer)}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Settings(**json.loads(sys.argv[1]))))
