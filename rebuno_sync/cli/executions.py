"""``rebuno-sync executions``: what runs, what has run, and what came of it."""

from __future__ import annotations

import argparse

from ..types import Execution, ExecutionStatus
from . import watching
from .asked import Operator
from .bundles import read_text
from .logbook import all_events, in_order, line, step_row
from .numbers import number
from .printing import fields, of, plain, print_json, table, value, when
from .subjects import Commands, Subject

__all__ = ["add_to"]

_MOST = 200


def add_to(commands: Commands) -> None:
    """Describe the commands."""
    executions = Subject(commands, "executions", "list, show, follow and end executions")
    listing = executions.asks("list", _list, "list executions, the newest first")
    listing.add_argument("--agent", metavar="AGENT", default="", help="those of an agent")
    listing.add_argument("--session", metavar="SESSION", default="", help="those of a session")
    listing.add_argument(
        "--status", choices=[*map(str, ExecutionStatus)], default="", help="those that are so"
    )
    listing.add_argument(
        "--limit",
        metavar="N",
        type=number(1, _MOST),
        default=50,
        help=f"how many, at most {_MOST} (50)",
    )
    listing.add_argument("--cursor", metavar="C", default="", help="where the last page ended")
    show = executions.asks("show", _show, "show an execution, its steps and its log")
    cancel = executions.asks("cancel", _cancel, "end an execution")
    fork = executions.asks("fork", _fork, "begin a new one with what one has settled")
    watch = executions.asks(
        "watch",
        watching.watch,
        "follow an execution's log until it ends; the exit code says whether it has completed",
    )
    stream = executions.asks(
        "stream", watching.stream, "follow what running steps receive, until the execution ends"
    )
    for parser in (show, cancel, fork, watch, stream):
        parser.add_argument("execution_id", metavar="EXECUTION", help="its id")
    for parser in (show, watch):
        parser.add_argument("--full", action="store_true", help="cut no long text short")
    watch.add_argument(
        "--after", metavar="SEQ", type=number(0), default=0, help="only events after that number"
    )
    fork.add_argument(
        "--at",
        metavar="SEQ",
        type=number(1),
        help="the last event that counts (default: the last one)",
    )
    fork.add_argument("--session", metavar="SESSION", default="", help="a new session for it")
    fork.add_argument(
        "--policy", metavar="FILE", help="a bundle that decides on its new steps; - for the input"
    )


def _list(kernel: Operator, options: argparse.Namespace) -> None:
    page = kernel.list(
        agent_id=options.agent,
        status=options.status,
        limit=options.limit,
        cursor=options.cursor,
        session=options.session,
    )
    if options.json:
        print_json(of(page))
        return
    table(
        ["EXECUTION", "STATUS", "CREATED", "AGENT", "KEY"],
        [
            (it.id, it.status, when(it.created_at), it.agent_id, it.idempotency_key or "")
            for it in page.executions
        ],
    )
    if page.next_cursor:
        print(f"There are more: --cursor {page.next_cursor}")


def _show(kernel: Operator, options: argparse.Namespace) -> None:
    execution = kernel.get(options.execution_id)
    events = list(all_events(kernel, execution.id))
    steps = in_order(kernel.list_steps(execution.id), events)
    if options.json:
        print_json({**of(execution), "steps": [*map(of, steps)], "events": [*map(of, events)]})
        return
    _describe(execution)
    print("\nsteps" if steps else "\nno steps")
    if steps:
        table(
            ["STEP", "STATUS", "KIND", "SECONDS", "CALL", "CAME OF IT"],
            [step_row(step, full=options.full) for step in steps],
        )
    print("\nevents")
    for event in events:
        print(line(event, full=options.full))


def _describe(it: Execution) -> None:
    spawned_by = it.spawned_by or {}
    fields(
        [
            *(("execution", it.id), ("agent", it.agent_id), ("status", it.status)),
            *(("created", when(it.created_at)), ("updated", when(it.updated_at))),
            ("deadline", it.deadline_at and when(it.deadline_at)),
            *(("key", it.idempotency_key), ("session", it.session)),
            *(("after", it.parent_execution_id), ("for", it.on_behalf_of)),
            ("spawned by", spawned_by.get("execution_id")),
            ("fork of", it.forked_from and f"{it.forked_from} at event {it.fork_seq}"),
            *(("input", value(it.input)), ("reason", it.failure_reason)),
            ("output", value(it.output) if it.status is ExecutionStatus.COMPLETED else ""),
        ]
    )


def _cancel(kernel: Operator, options: argparse.Namespace) -> None:
    kernel.cancel(options.execution_id)
    if options.json:
        print_json({"id": options.execution_id, "status": ExecutionStatus.CANCELLED})
    else:
        print(f"cancelled {plain(options.execution_id)}")


def _fork(kernel: Operator, options: argparse.Namespace) -> None:
    bundle = read_text(options.policy) if options.policy else ""
    at = options.at
    if at is None:
        at = kernel.fork_points(options.execution_id).latest_seq
    fork = kernel.fork(options.execution_id, at, options.session, bundle)
    if options.json:
        print_json(of(fork))
    else:
        print(fork.id)
