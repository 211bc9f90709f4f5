"""``rebuno-sync executions watch`` and ``stream``: an execution, as it goes on."""

from __future__ import annotations

import argparse
import sys
import threading

from ..errors import NetworkError
from ..types import Execution, ExecutionStatus
from .asked import Operator
from .failing import FAILED
from .logbook import all_events, line
from .printing import of, plain, print_json, value

__all__ = ["stream", "watch"]

_LOOK_EVERY_SECONDS = 0.25


def watch(kernel: Operator, options: argparse.Namespace) -> int:
    """Print each event as it comes; 0 when the execution has completed, else 1."""
    execution = kernel.get(options.execution_id)
    seen, away = options.after, False
    pause = threading.Event()
    while True:
        try:
            # Asked before the log, so that the log is whole when this says that it has ended.
            execution = kernel.get(execution.id)
            for event in all_events(kernel, execution.id, seen):
                seen = event.event_seq
                if options.json:
                    print_json(of(event), line=True)
                else:
                    print(line(event, full=options.full), flush=True)
            away = False
        except NetworkError as error:
            if not away:
                print(f"still watching: {plain(error)}", file=sys.stderr)
            away = True
        if execution.status.terminal and not away:
            break
        pause.wait(_LOOK_EVERY_SECONDS)
    if not options.json:
        print(_end(execution))
    return 0 if execution.status is ExecutionStatus.COMPLETED else FAILED


def _end(execution: Execution) -> str:
    if execution.status is ExecutionStatus.COMPLETED:
        return f"completed: {value(execution.output)}"
    return plain(f"{execution.status}: {execution.failure_reason}")


def stream(kernel: Operator, options: argparse.Namespace) -> None:
    """Print what steps receive as it comes, under the step's id where that changes."""
    last = ""
    with kernel.stream(options.execution_id) as deltas:
        for delta in deltas:
            if options.json:
                print_json(delta._asdict(), line=True)
                continue
            if delta.step_id != last:
                print(("\n" if last else "") + f"[{plain(delta.step_id[:8])}]")
                last = delta.step_id
            print("\n".join(map(plain, delta.data.split("\n"))), end="", flush=True)
    if last:
        print()
