"""``rebuno-sync policies test``: what a policy would say of calls, without making any."""

from __future__ import annotations

import argparse
import json
from datetime import datetime
from pathlib import Path
from typing import Any

from ..codec import PLAIN
from ..kernel.policy import BundleInvalid, CaseInvalid, TrialCase, try_out
from ..kernel.policy.document import Members, read_document
from ..kernel.views import report_view
from ..types import PolicyReport, PolicyResult, StepKind
from .asked import add_kernel_options, asked
from .bundles import checked, problem_in, read_text
from .failing import FAILED, BadUsage, Refused
from .numbers import number
from .printing import of, plain, print_json, short, table, value
from .subjects import Subject

__all__ = ["add_to"]

_MOST = 1000

_CASE_FILE = ("agent_id", "cases")
_CASE = ("name", "agent_id", "kind", "target", "args", "expect", "expect_rule")


def add_to(policies: Subject) -> None:
    """Describe the command."""
    test = policies.does(
        "test",
        _test,
        "see what a policy would say of calls; a kernel is asked for those of the past alone",
    )
    add_kernel_options(test)
    test.add_argument("file", metavar="FILE", help="a bundle (YAML); - for the input")
    which = test.add_mutually_exclusive_group()
    which.add_argument(
        "--cases",
        metavar="CASES",
        help="a file of calls and what is expected of them (default: NAME.policytest.yaml beside"
        " NAME.yaml)",
    )
    which.add_argument("--target", metavar="TARGET", help="one call: of which tool, step or model")
    which.add_argument("--execution", metavar="EXECUTION", help="the calls that it has made")
    which.add_argument(
        "--past",
        metavar="N",
        type=number(1, _MOST),
        help="the calls of the last N executions of --agent",
    )
    test.add_argument("--agent", metavar="AGENT", default="", help="whose calls they are")
    test.add_argument(
        "--args", metavar="JSON", type=_json, default=None, help="with --target: the arguments"
    )
    test.add_argument(
        "--kind",
        choices=[*map(str, StepKind)],
        default=str(StepKind.TOOL_CALL),
        help="with --target: what sort of call it is (default: %(default)s)",
    )
    test.add_argument(
        "--since",
        metavar="TIME",
        type=_time,
        help="with --past: none created before, like 2026-01-31T12:00:00Z",
    )


def _test(options: argparse.Namespace) -> int:
    bundle = read_text(options.file)
    policy = checked(options.file, bundle)
    if options.execution or options.past is not None:
        report = _replayed(bundle, options)
    else:
        agent_id, cases = _given(options)
        try:
            report = report_view(try_out(policy, agent_id, cases))
        except CaseInvalid as error:
            raise Refused(f"{_case_file(options)}: {error}") from None
    if options.json:
        print_json(of(report))
    else:
        _show(report)
    return FAILED if report.failed else 0


def _replayed(bundle: str, options: argparse.Namespace) -> PolicyReport:
    """What was asked of people and policies before; the kernel has it."""
    if not (options.execution or options.agent):
        raise BadUsage("--past needs --agent AGENT: whose executions")
    with asked(options) as kernel:
        if options.execution:
            agent_id = options.agent or kernel.get(options.execution).agent_id
            return kernel.test_policy(agent_id, bundle, execution_id=options.execution)
        past = {"limit": options.past} | ({"since": options.since} if options.since else {})
        return kernel.test_policy(options.agent, bundle, executions=past)


def _given(options: argparse.Namespace) -> tuple[str, list[TrialCase]]:
    if options.target is not None:
        args = PLAIN.encode(options.args, "args")
        return options.agent, [TrialCase(options.target, options.kind, args)]
    name = _case_file(options)
    text = read_text(name)
    try:
        agent_id, cases = _cases(text)
    except BundleInvalid as error:
        raise Refused(*problem_in(name, text, str(error)).lines()) from None
    return options.agent or agent_id, cases


def _case_file(options: argparse.Namespace) -> str:
    if options.cases:
        return str(options.cases)
    beside = Path(options.file).with_suffix(".policytest.yaml")
    if options.file == "-" or not beside.exists():
        raise BadUsage(
            f"there is no {beside.name} beside {options.file}; give calls: --cases, --target,"
            " --execution or --past"
        )
    return str(beside)


def _cases(text: str) -> tuple[str, list[TrialCase]]:
    """What a file of cases says: ``agent_id`` and ``cases``. Raises ``BundleInvalid``."""
    import yaml

    if not text.strip():
        raise BundleInvalid("line 1: the file says nothing; cases: [...] is expected")
    file = read_document(text).members(_CASE_FILE)
    listed = file.get("cases")
    if listed is None:
        file.of.fail("'cases' is missing")
    found = [case.members(_CASE) for case in listed.items()]
    # The same once more, as values: arguments may be anything.
    try:
        values: list[dict[str, Any] | None] = yaml.safe_load(text)["cases"]
    except (yaml.YAMLError, ValueError) as error:
        raise BundleInvalid(f"not all of it is JSON: {error}") from None
    cases = []
    for case, whole in zip(found, values, strict=True):
        texts = {name: case.text(name) for name in _CASE if name not in ("args", "kind")}
        kind = case.text("kind") or StepKind.TOOL_CALL
        cases.append(
            TrialCase(kind=kind, args=_arguments(case, (whole or {}).get("args")), **texts)
        )
    return file.text("agent_id"), cases


def _arguments(case: Members, args: object) -> str:
    """Arguments as JSON. YAML has values that JSON has not: dates."""
    try:
        return PLAIN.encode(args, "args")
    except TypeError:
        (case.get("args") or case.of).fail("this is not JSON; put dates in quotes")


def _show(report: PolicyReport) -> None:
    table(
        ["", "CALL", "SAYS", "RULE", "WHY"],
        [("ok" if it.passed else "FAILED", *_told(it)) for it in report.results],
    )
    calls = "1 call" if len(report.results) == 1 else f"{len(report.results)} calls"
    print(f"{calls}, {report.failed} not as expected")
    if report.unexercised_rules:
        print(f"rules that decided none of them: {plain(', '.join(report.unexercised_rules))}")


def _told(result: PolicyResult) -> tuple[str, str, str, str]:
    call = result.name or f"{result.target} {value(result.args)}"
    was = f"was rule {result.was_rule}" if result.was_rule not in ("", result.rule_id) else ""
    why = "; ".join(filter(None, [result.failure, result.reason, was]))
    return short(call), result.decision, result.rule_id, why


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {error}") from None


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time; write 2026-01-31T12:00:00Z"
        ) from None
