"""No write is missing in the matrix: a new route or method needs a column."""

from __future__ import annotations

import inspect

import pytest

from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel.http.described import DESCRIBED
from rebuno_sync.kernel.http.routes import ROUTES
from rebuno_sync.kernel.lifecycle import live_execution
from rebuno_sync.ports import AgentKernel, ResourceKernel
from rebuno_sync.types import (
    ApprovalStatus,
    DecisionKind,
    DispatchStatus,
    ExecutionStatus,
    StepStatus,
)

from .cells import Row
from .tables import EXECUTIONS, TABLES

COLUMNS = [column for table in TABLES.values() for column in table.columns]

READING = {
    # what an agent asks …
    "agent.get_execution",
    "agent.list_steps",
    "agent.recorded",
    "agent.wall",
    "agent.get_step",
    "agent.previous",
    # … and an operator
    "agents",
    "change_mark",
    "events",
    "export_execution",
    "find",
    "fork_points",
    "get",
    "get_agent",
    "get_approval",
    "get_step",
    "iterate",
    "knows_agent",
    "list",
    "list_approvals",
    "list_keys",
    "list_steps",
    "monotonic",
    "previous",
    "stream",
    "wait",
    "wait_for_change",
}
"""Methods that write nothing, except for what time has brought about."""

OF_OTHERS = {"run"}
"""Methods that ask for what others do: ``create``, then ``wait``."""

OF_THE_OBJECT = {
    "backup",
    "close",
    "deliver_webhooks",
    "dispatcher",
    "host",
    "leave_claim",
    "stop_deliveries",
    "unhost",
    "watch_lease",
}
"""Methods that are about this process or a copy of the file, not about what is recorded."""


def test_every_route_that_writes_has_a_column() -> None:
    """Of the table of routes, and of its description, everything but ``GET``; nothing else."""
    routes = {f"{method} {pattern}" for pattern, methods in ROUTES.items() for method in methods}
    asked = {column.route for column in COLUMNS if column.route}
    assert {route for route in routes if not route.startswith("GET ")} == {
        route for route in asked if not route.startswith("GET ")
    }
    assert asked <= DESCRIBED.keys()


def _methods(of: type, prefix: str = "") -> set[str]:
    return {
        prefix + name
        for name, _ in inspect.getmembers(of, inspect.isfunction)
        if not name.startswith("_")
    }


def test_every_method_that_writes_has_a_column() -> None:
    """Of the kernel, and of what agents may ask of it in process."""
    methods = (
        _methods(Kernel)
        | _methods(AgentKernel, "agent.")
        | _methods(ResourceKernel, "agent.resources.")
    )
    asked = {column.port for column in COLUMNS if column.port}
    assert asked | READING | OF_OTHERS | OF_THE_OBJECT == methods
    assert asked.isdisjoint(READING | OF_OTHERS | OF_THE_OBJECT)


def test_each_column_asks_for_its_method() -> None:
    """What is asked over HTTP is asked in process, where there is a method for it."""
    for column in COLUMNS:
        assert bool(column.port) == (column.direct is not None), column.name


_UNREACHABLE = {StepStatus.PROPOSED}
"""No step rests there (protocol.md 3.2)."""


@pytest.mark.parametrize(
    ("words", "prefix", "rows"),
    [
        (set(ExecutionStatus), "", EXECUTIONS.rows),
        (set(StepStatus) - _UNREACHABLE, "step-", EXECUTIONS.rows),
        (set(DispatchStatus), "dispatch-", EXECUTIONS.rows),
        (set(ApprovalStatus), "approval-", TABLES["approval"].rows),
    ],
)
def test_every_status_has_a_row(words: set[str], prefix: str, rows: tuple[Row, ...]) -> None:
    """Of executions, steps, dispatches and approvals: a new status needs a row."""
    there = {word for row in rows for word in row.facets.split()}
    assert {f"{prefix}{word}" for word in words} <= there


def test_the_words_of_ended_executions() -> None:
    """A row has the word ``ended`` exactly where its status ends an execution."""
    for row in EXECUTIONS.rows:
        words = set(row.facets.split())
        for status in ExecutionStatus:
            if status in words:
                assert live_execution(status) != ("ended" in words), row.name


def test_every_decision_is_expected_somewhere() -> None:
    """All that can be answered to a submit or an outcome is an answer of some rule (7.5)."""
    told = {word for column in COLUMNS for one in column.rules for word in one.answer.split()}
    assert set(DecisionKind) - told == {DecisionKind.EXECUTION_BLOCKED}


def test_every_rule_names_its_section() -> None:
    """Of protocol.md, where it is written."""
    assert all(one.section for column in COLUMNS for one in column.rules)


def test_every_rule_decides_somewhere() -> None:
    """A rule that decides on no cell is a mistake."""
    idle = []
    for name, table in TABLES.items():
        decided = {
            (column.name, column.expected(frozenset(row.facets.split()), road))
            for road, row, column in table.cells()
        }
        idle += [
            f"{name}: {column.name}: {sorted(one.when)} -> {one.answer}"
            for column in table.columns
            for one in column.rules
            if (column.name, one) not in decided
        ]
    assert idle == []
