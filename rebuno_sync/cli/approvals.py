"""``rebuno-sync approvals``: what waits for a person, and the person's word."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator

from ..errors import ForbiddenError
from ..types import Approval, ApprovalStatus, Execution, Step
from .asked import Operator
from .printing import fields, of, plain, print_json, short, table, value, when
from .subjects import Commands, Subject

__all__ = ["add_to"]

_ALL = "all"


def add_to(commands: Commands) -> None:
    """Describe the commands."""
    approvals = Subject(commands, "approvals", "see and decide what waits for a person")
    listing = approvals.asks("list", _list, "list approvals, the oldest first")
    listing.add_argument(
        "--status",
        default=str(ApprovalStatus.PENDING),
        choices=[*map(str, ApprovalStatus), _ALL],
        help="those that are so (default: %(default)s); a kernel that is not of this package may"
        " know of pending ones only",
    )
    listing.add_argument("--execution", metavar="EXECUTION", help="those of an execution")
    listing.add_argument("--agent", metavar="AGENT", help="those of an agent's executions")
    listing.add_argument("--for", dest="approver", metavar="NAME", help="those NAME may decide")
    show = approvals.asks("show", _show, "show an approval and the call that it is about")
    grant = approvals.asks("grant", _grant, "let the call be made")
    deny = approvals.asks("deny", _deny, "refuse the call; its handler goes on without")
    for parser in (show, grant, deny):
        parser.add_argument("approval_id", metavar="APPROVAL", help="its id")
    for parser in (grant, deny):
        parser.add_argument(
            "--as",
            dest="approver",
            metavar="APPROVER",
            default=os.environ.get("USER", ""),
            help="who decides, one of the approvers where the policy names some (default: $USER)",
        )
        parser.add_argument(
            "--reason",
            "--rationale",
            dest="reason",
            metavar="TEXT",
            default="",
            help="why, for the record; the handler is told it with a refusal",
        )


def _list(kernel: Operator, options: argparse.Namespace) -> None:
    found = list(_found(kernel, options))
    if options.json:
        print_json([of(approval) for approval in found])
        return
    table(
        ["APPROVAL", "STATUS", "UNTIL", "APPROVERS", "CALL"],
        [
            (
                *(it.id, it.status, when(it.decided_at or it.timeout_at)),
                *(", ".join(it.approvers or ["anybody"]), short(_call(_step(kernel, it)))),
            )
            for it in found
        ],
    )


def _found(kernel: Operator, options: argparse.Namespace) -> Iterator[Approval]:
    of_agent: dict[str, bool] = {}

    def is_of_agent(execution_id: str) -> bool:
        if execution_id not in of_agent:
            of_agent[execution_id] = kernel.get(execution_id).agent_id == options.agent
        return of_agent[execution_id]

    for status in ApprovalStatus if options.status == _ALL else [options.status]:
        for approval in kernel.list_approvals(str(status)):
            # Other kernels list what is pending, whatever they are asked for.
            wanted = approval.status == status
            wanted = wanted and options.execution in (None, approval.execution_id)
            if options.approver is not None and approval.approvers:
                wanted = wanted and options.approver in approval.approvers
            if wanted and (options.agent is None or is_of_agent(approval.execution_id)):
                yield approval


def _show(kernel: Operator, options: argparse.Namespace) -> None:
    approval = kernel.get_approval(options.approval_id)
    step, execution = _step(kernel, approval), _execution(kernel, approval)
    if options.json:
        print_json(
            {
                **of(approval),
                "step": None if step is None else of(step),
                "agent_id": None if execution is None else execution.agent_id,
            }
        )
        return
    fields(
        [
            *(("approval", approval.id), ("status", approval.status)),
            ("message", approval.message),
            ("call", _call(step)),
            ("agent", "" if execution is None else execution.agent_id),
            ("execution", approval.execution_id),
            ("for", "" if execution is None else execution.on_behalf_of),
            ("approvers", ", ".join(approval.approvers or ["anybody"])),
            *(("asked", when(approval.created_at)), ("until", when(approval.timeout_at))),
            ("decided", "" if approval.decided_at is None else when(approval.decided_at)),
            *(("by", approval.decided_by), ("reason", approval.rationale)),
        ]
    )


def _step(kernel: Operator, approval: Approval) -> Step | None:
    """The call, whole: whoever decides must see it. ``None`` where the key may not read it."""
    try:
        return kernel.get_step(approval.execution_id, approval.step_id)
    except ForbiddenError:
        return None


def _execution(kernel: Operator, approval: Approval) -> Execution | None:
    try:
        return kernel.get(approval.execution_id)
    except ForbiddenError:
        return None


def _call(step: Step | None) -> str:
    if step is None:
        return "(to see it, a key needs executions:read)"
    return f"{plain(step.target)} {value(step.args)}"


def _grant(kernel: Operator, options: argparse.Namespace) -> None:
    _decide(kernel.grant_approval, ApprovalStatus.GRANTED, kernel, options)


def _deny(kernel: Operator, options: argparse.Namespace) -> None:
    _decide(kernel.deny_approval, ApprovalStatus.DENIED, kernel, options)


def _decide(
    decide: Callable[[str, str, str], None],
    word: ApprovalStatus,
    kernel: Operator,
    options: argparse.Namespace,
) -> None:
    try:
        decide(options.approval_id, options.approver, options.reason)
    except ForbiddenError as refusal:
        if "approver" in refusal.message:
            refusal.message += "; say who decides with --as APPROVER"
        raise
    if options.json:
        print_json({"id": options.approval_id, "status": word})
    else:
        print(
            f"{word} {options.approval_id}"
            + (f" as {options.approver}" if options.approver else "")
        )
