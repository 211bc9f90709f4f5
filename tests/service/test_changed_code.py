"""Changed code over HTTP, where a kernel does not say in whose body a step was called."""

from __future__ import annotations

import datetime as dt
import email.utils
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.services import SECRET, Service

import rebuno_sync as rebuno
from rebuno_sync.clock import ManualClock
from rebuno_sync.kernel_client import KernelClient
from rebuno_sync.remote_clock import RemoteClock


@pytest.fixture(params=[True, False], ids=["extensions", "plain"])
def served(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Service]:
    """With leases that soon run out where they cannot be given back."""
    with Service(tmp_path, extensions=request.param, lease_timeout=1.0) as service:
        yield service


@rebuno.tool
def search(query: str) -> str:
    return f"found {query}"


@rebuno.tool
def search_all(query: str) -> str:
    return f"found all {query}"


@rebuno.tool
def outer() -> str:
    return search("inside")


def test_c38_drift_is_reported_over_http(served: Service, caplog: pytest.LogCaptureFixture) -> None:
    """Not the call in the body of an effect that is replayed, by the times of both."""
    code = [search, search_all]

    def handler() -> str:
        outer()
        replaying = rebuno.execution().replaying
        found = code.pop(0)("a")
        if code:
            rebuno.execution().interrupt("as a test says")
        assert replaying is not bool(code)
        return found

    served.agent(handler)
    assert served.run() == "found all a"
    [report] = [it.getMessage() for it in caplog.records if "has not met" in it.getMessage()]
    assert "has not met 1 of its recorded steps" in report
    assert 'tool_call search {"query": "a"}' in report


def test_c38_strict_stops_over_http(served: Service, caplog: pytest.LogCaptureFixture) -> None:
    """The execution goes on when an attempt has the old code again."""
    code = [search, search_all, search]

    def handler() -> str:
        outer()
        found = code.pop(0)("a")
        if len(code) == 2:
            rebuno.execution().interrupt("as a test says")
        return found

    served.agent(handler, strict=True)
    with caplog.at_level(logging.ERROR):
        assert served.run(timeout=30) == "found a"
    [stop] = [it.getMessage() for it in caplog.records if "was stopped" in it.getMessage()]
    assert 'tool_call search_all {"query": "a"}' in stop
    assert ("cost no strike" in stop) is not ("dispatch_exhausted" in stop)
    execution = served.client.list().executions[0]
    targets = [step.target for step in served.client.list_steps(execution.id)]
    assert "search_all" not in targets


@pytest.mark.slow
def test_c38_a_strict_stop_costs_no_strike(tmp_path: Path) -> None:
    """However many attempts meet the changed code, the execution waits for the old one."""
    code = [search] + [search_all] * 3 + [search]

    def handler() -> str:
        found = code.pop(0)("a")
        if len(code) == 4:
            rebuno.execution().interrupt("as a test says")
        return found

    with Service(tmp_path, max_attempts=2) as service:
        service.agent(handler, strict=True)
        assert service.run(timeout=60) == "found a"
    assert code == []


def header(seconds: float) -> str:
    at = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)
    return email.utils.format_datetime(at, usegmt=True)


@pytest.mark.parametrize("ahead", [-3600, -10, 0, 1, 10, 86_400])
def test_the_kernels_clock_is_known_from_its_dates(ahead: int) -> None:
    """To the second, when it differs; this machine's clock when it does not."""
    own = ManualClock()
    clock = RemoteClock(own)
    assert clock.wall() == own.wall()
    clock.hear(header(ahead))
    own.advance(5)
    found = (clock.wall() - own.wall()) / 1_000_000
    assert found == (0 if abs(ahead) < 2 else ahead + 0.5)


@pytest.mark.parametrize("date", [None, "", "yesterday", "Thu, 99 Jan 2026 12:00:00 GMT"])
def test_a_date_that_is_none_tells_nothing(date: str | None) -> None:
    """Some servers send none."""
    own = ManualClock()
    clock = RemoteClock(own)
    clock.hear(date)
    assert clock.wall() == own.wall()


def test_what_is_recorded_comes_in_its_order_and_without_its_values(tmp_path: Path) -> None:
    """A history of megabytes is not sent to every attempt that resumes it."""
    with Service(tmp_path) as service:
        service.agent(lambda: [search("x" * 100_000), outer()])
        service.run()
        execution = service.client.list().executions[0]
        client = KernelClient(service.url, "served", SECRET)
        recorded = client.recorded(execution.id)
        client.close()
        steps = {step.step_id: step for step in service.kernel.list_steps(execution.id)}
    assert [(it.target, it.args_hash) for it in recorded] == [
        (steps[it.step_id].target, steps[it.step_id].args_hash) for it in recorded
    ]
    assert [it.target for it in recorded] == ["search", "outer", "search"]
    assert all(it.settled and it.parent is None for it in recorded)
    assert all(
        (it.started_at or 0) <= (it.completed_at or 0) <= service.kernel.agent.wall()
        for it in recorded
    )
