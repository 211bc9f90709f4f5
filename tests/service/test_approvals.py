"""A person decides on the effects of an agent over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.services import Service
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync.errors import ConflictError, ExecutionCancelled, ForbiddenError, ValidationError
from rebuno_sync.types import Approval

ASK = """
default_action: allow
rules:
  - id: ask
    when: {target: "charge*"}
    then: {decision: require_approval, approval_config: {approvers: [alice]}}
"""


@pytest.fixture(params=[True, False], ids=["extensions", "protocol alone"])
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    with Service(tmp_path, extensions=request.param) as service:
        yield service


def next_approval(service: Service) -> Approval:
    return wait_until(service.client.list_approvals, "somebody asking for an approval")[0]


def test_a_granted_effect_runs_and_what_came_before_is_replayed(service: Service) -> None:
    """Results that were still held back as the execution blocked are recorded too."""
    ran: list[str] = []

    @rebuno.tool
    def search() -> str:
        ran.append("search")
        return "found"

    @rebuno.tool(idempotency="at_most_once")
    def charge() -> str:
        ran.append("charge")
        return "charged"

    service.agent(lambda: [search(), charge(), search()])
    service.client.set_policy("served", ASK)
    execution_id = service.client.create("served", {}).id
    approval = next_approval(service)
    assert service.client.get(execution_id).status == "blocked"
    assert service.client.get_approval(approval.id) == approval
    with pytest.raises(TimeoutError, match=f"has to grant or deny approval {approval.id}$"):
        service.client.wait(execution_id, timeout=0)
    with pytest.raises(ForbiddenError, match="its approvers are alice"):
        service.client.grant_approval(approval.id, "bob")
    service.client.grant_approval(approval.id, "alice", "fine")
    output = service.client.wait(execution_id, timeout=20).output
    assert output == ["found", "charged", "found"]
    assert ran == ["search", "charge", "search"]
    with pytest.raises(ConflictError, match=r"already granted by 'alice' at .*: fine"):
        service.client.deny_approval(approval.id, "alice")


def test_c18_parallel_tools_are_asked_for_one_after_another(service: Service) -> None:
    """Each gets its own answer, and granted ones run once."""
    ran: list[str] = []

    def tool(name: str) -> object:
        @rebuno.tool(name)
        def charge() -> str:
            ran.append(name)
            return f"{name} done"

        return charge

    charges = [tool(f"charge_{letter}") for letter in "abc"]

    def handler() -> list[str]:
        with rebuno.ThreadPoolExecutor(3) as pool:
            return list(pool.map(lambda charge: charge(), charges))  # type: ignore[operator]

    service.agent(handler)
    service.client.set_policy("served", ASK)
    execution_id = service.client.create("served", {}).id
    for _ in charges:
        approval = next_approval(service)
        target = service.client.get_step(execution_id, approval.step_id).target
        if target == "charge_a":
            service.client.deny_approval(approval.id, "alice", "not that one")
        else:
            service.client.grant_approval(approval.id, "alice")
    refused, *done = service.client.wait(execution_id, timeout=20).output
    assert "charge_a not allowed" in refused
    assert "not that one" in refused
    assert done == ["charge_b done", "charge_c done"]
    assert sorted(ran) == ["charge_b", "charge_c"]


def test_cancelling_while_blocked_ends_it(service: Service) -> None:
    """Nobody is asked any more."""

    @rebuno.tool
    def charge() -> None:
        raise AssertionError("nobody granted this")

    service.agent(charge)
    service.client.set_policy("served", ASK)
    execution_id = service.client.create("served", {}).id
    next_approval(service)
    service.client.cancel(execution_id)
    with pytest.raises(ExecutionCancelled):
        service.client.wait(execution_id, timeout=20)
    assert service.client.list_approvals() == []


def test_a_rate_limit_that_waits_parks_the_execution(service: Service) -> None:
    """The handler runs again when there is a token, and goes on."""

    @rebuno.tool
    def look(number: int) -> int:
        return number

    service.agent(lambda: [look(number) for number in range(2)])
    service.client.set_policy(
        "served",
        "rules: [{id: slow, then: {decision: allow,"
        " rate_limit: {max_calls: 1, window: 300ms, max_wait: 5s}}}]",
    )
    begun = service.kernel.monotonic()
    assert service.run({}) == [0, 1]
    assert service.kernel.monotonic() - begun > 0.25


def test_a_bundle_is_refused_with_its_line(service: Service) -> None:
    """Whoever sets it reads what is wrong."""
    service.agent(lambda: None)
    with pytest.raises(ValidationError, match="line 2: rules: a list is expected"):
        service.client.set_policy("served", "default_action: deny\nrules: {}\n")
