"""Every status of an execution against everything that may still arrive for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import pytest

from rebuno_sync.clock import ManualClock
from rebuno_sync.errors import APIError
from rebuno_sync.kernel import Kernel
from rebuno_sync.kernel.store import Connection, tables
from rebuno_sync.types import LeaseKey

from .moves import attempt, call, kinds, perform, start


class Scene(NamedTuple):
    kernel: Kernel
    lease: LeaseKey
    open: str
    """A step that was executing when the status was entered."""
    settled: str


def block(scene: Scene) -> None:
    """What an approval does to an execution (protocol.md 5.5): blocked, its lease retired."""
    execution_id = scene.lease.execution_id

    def work(db: Connection) -> None:
        row = tables.execution(db, execution_id)
        assert row is not None
        db.execute("UPDATE executions SET status = 'blocked' WHERE n = ?", (row.n,))
        tables.retire_dispatches(db, row.n)

    scene.kernel._store().write(work, durable=True)


STATUSES: dict[str, Callable[[Scene], object]] = {
    "running": lambda scene: None,
    "blocked": block,
    "completed": lambda scene: scene.kernel.agent.complete(scene.lease, "1"),
    "failed": lambda scene: scene.kernel.agent.fail(scene.lease, "no"),
    "cancelled": lambda scene: scene.kernel.cancel(scene.lease.execution_id),
}

WRITES: dict[str, Callable[[Scene], object]] = {
    "submit new": lambda s: s.kernel.agent.submit(s.lease, call("new")).decision,
    "submit open": lambda s: s.kernel.agent.submit(s.lease, call("open")).decision,
    "submit recorded": lambda s: s.kernel.agent.submit(s.lease, call("unmet")).decision,
    "complete open": lambda s: s.kernel.agent.complete_step(s.lease, s.open, "2").decision,
    "fail open": lambda s: s.kernel.agent.fail_step(s.lease, s.open, "2").decision,
    "complete settled": lambda s: s.kernel.agent.complete_step(s.lease, s.settled, "2").decision,
    "fail settled": lambda s: s.kernel.agent.fail_step(s.lease, s.settled, "2").decision,
    "heartbeat": lambda s: s.kernel.agent.renew([s.lease])[0].value,
    "complete": lambda s: s.kernel.agent.complete(s.lease, "2"),
    "fail": lambda s: s.kernel.agent.fail(s.lease, "late"),
    "release": lambda s: s.kernel.agent.release(s.lease),
    "cancel": lambda s: s.kernel.cancel(s.lease.execution_id),
    "claim": lambda s: s.kernel.claim(s.lease.execution_id),
}

_OVER, _GONE = "execution_terminal", "lease_superseded"

# The answer, "!" and the code of an error, or None; and how many events it appends.
EXPECTED: dict[str, tuple[tuple[str | None, int], tuple[str | None, int], str | None]] = {
    #                   running            blocked               any terminal status (no event)
    "submit new":       (("proceed", 3),   (f"!{_GONE}", 0),     _OVER),
    "submit open":      (("proceed", 3),   (f"!{_GONE}", 0),     _OVER),
    "submit recorded":  (("replay", 0),    (f"!{_GONE}", 0),     _OVER),
    "complete open":    (("recorded", 1),  ("recorded", 1),      _OVER),
    "fail open":        (("recorded", 1),  ("recorded", 1),      _OVER),
    "complete settled": (("replay", 0),    ("replay", 0),        _OVER),
    "fail settled":     (("replay", 0),    ("replay", 0),        _OVER),
    "heartbeat":        (("accepted", 0),  ("superseded", 0),    "superseded"),
    "complete":         ((None, 1),        (f"!{_GONE}", 0),     f"!{_OVER}"),
    "fail":             ((None, 1),        (f"!{_GONE}", 0),     f"!{_OVER}"),
    "release":          ((None, 0),        (f"!{_GONE}", 0),     f"!{_OVER}"),
    "cancel":           ((None, 2),        (None, 2),            "!conflict"),
    "claim":            ((None, 0),        (None, 0),            None),
}  # fmt: skip


def _scene(kernel: Kernel) -> Scene:
    """A second attempt that has met one of two results of the first, and has a step open."""
    first = start(kernel)
    settled = perform(kernel, first, call("settled"), 1)
    perform(kernel, first, call("unmet"))
    kernel.agent.release(first)
    lease = attempt(kernel, first.execution_id)
    assert kernel.agent.submit(lease, call("settled")).decision == "replay"
    return Scene(kernel, lease, kernel.agent.submit(lease, call("open")).step_id, settled)


def _expected(status: str, write: str) -> tuple[str | None, int]:
    running, blocked, terminal = EXPECTED[write]
    return {"running": running, "blocked": blocked}.get(status, (terminal, 0))


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("status", STATUSES)
def test_every_late_write_has_its_answer(kernel: Kernel, status: str, write: str) -> None:
    """A write gets the answer of the table, and appends exactly as many events as that says."""
    scene = _scene(kernel)
    lease, settled = scene.lease, scene.settled
    STATUSES[status](scene)
    assert kernel.get(lease.execution_id).status == status
    before = kinds(kernel, lease.execution_id)
    try:
        answer = WRITES[write](scene)
    except APIError as error:
        answer = f"!{error.code}"
    appended = kinds(kernel, lease.execution_id)[len(before) :]
    assert (answer, len(appended)) == _expected(status, write)
    assert kernel.get_step(lease.execution_id, settled).result == 1


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_what_has_ended_stays_as_it_is(
    kernel: Kernel, clock: ManualClock, status: str, write: str
) -> None:
    """No late write, however late, changes an ended execution, its steps or its log."""
    scene = _scene(kernel)
    lease = scene.lease
    STATUSES[status](scene)
    clock.advance(1e6)

    def state() -> object:
        execution_id = lease.execution_id
        return (
            kernel.get(execution_id),
            kernel.list_steps(execution_id),
            kernel.events(execution_id),
        )

    before = state()
    with suppress(APIError):
        WRITES[write](scene)
    assert state() == before


@pytest.mark.parametrize(
    "last", ["submit new", "complete open", "heartbeat", "complete", "release"]
)
@pytest.mark.parametrize("status", ["cancelled", "blocked"])
def test_an_attempt_that_is_over_leaves_nothing_in_memory(
    kernel: Kernel, status: str, last: str
) -> None:
    """What is kept of an attempt goes when it hears, in whatever way, that it holds nothing."""
    scene = _scene(kernel)
    STATUSES[status](scene)
    with suppress(APIError):
        WRITES[last](scene)
    held = kernel._store().attempts.get(scene.lease)
    assert held is None or (status, last) == ("blocked", "complete open")
