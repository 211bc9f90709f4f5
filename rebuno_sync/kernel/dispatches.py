"""Claims, renewals and releases (protocol.md 5, and `release` of 17). Functions of a
transaction."""

from __future__ import annotations

import json
from threading import Thread
from typing import NamedTuple

from ..errors import NotFoundError
from ..types import DispatchStatus, ExecutionStatus, LeaseKey
from . import executions, fence
from .lifecycle import backoff_seconds, claimable, exhausted, live_execution
from .moment import Moment
from .store import Connection, tables
from .store.owners import Owner

__all__ = ["Claim", "Claimer", "claim", "release", "renew"]

DISPATCH_EXHAUSTED = "dispatch_exhausted"


class Claimer(NamedTuple):
    """Who asks for a lease: a process, and the thread of it that will run the handler, if known."""

    owner: Owner
    thread: Thread | None


class Claim(NamedTuple):
    """A lease won: who holds it, for how long, and how many steps earlier attempts recorded."""

    lease: LeaseKey
    lease_seconds: float
    recorded: int
    at: float
    """When, on the monotonic clock."""


def claim(
    db: Connection,
    execution_id: str,
    claimer: Claimer,
    lease_seconds: float,
    now: Moment,
) -> Claim | None:
    """Take the lease of an execution for a handler in this process, if it is free.

    A lease that ran out, or whose owner has died, is free. ``None`` when another attempt holds it,
    when it is not due yet, or when there is nothing left to run. A claim too many ends the
    execution as failed with ``dispatch_exhausted``.
    """
    execution = executions.get(db, execution_id)
    if not live_execution(execution.status):
        return None
    if execution.deadline_due is not None and execution.deadline_due <= now.boottime:
        executions.expire(db, execution_id, now)
        return None
    dispatch = tables.open_dispatch(db, execution.n)
    if dispatch is None or not claimable(
        dispatch.status,
        due=dispatch.due,
        now=now.boottime,
        lease_ended=dispatch.renewed + dispatch.lease_seconds < now.monotonic,
        owner_alive=claimer.owner.holds(
            db,
            dispatch.owner,
            LeaseKey(execution_id, dispatch.id, dispatch.attempt),
            claimer.thread,
        ),
    ):
        return None
    if exhausted(
        attempt=dispatch.attempt, strikes=dispatch.strikes, max_attempts=dispatch.max_attempts
    ):
        executions.end(db, execution.n, ExecutionStatus.FAILED, now, reason=DISPATCH_EXHAUSTED)
        return None
    seconds = tables.agent_lease_seconds(db, execution.agent_id) or lease_seconds
    tables.claim_dispatch(db, dispatch.n, claimer.owner.present(db), seconds, now.monotonic)
    attempt = dispatch.attempt + 1
    acked = json.dumps({"dispatch_id": dispatch.id, "attempt": attempt})
    tables.append_events(
        db,
        execution.n,
        tables.last_seq(db, execution.n),
        [("dispatch.acked", None, acked)],
        now.wall,
    )
    lease = LeaseKey(execution_id, dispatch.id, attempt)
    return Claim(lease, seconds, tables.count_steps(db, execution.n), now.monotonic)


def renew(db: Connection, lease: LeaseKey, now: Moment) -> bool:
    """A heartbeat: whether the lease is still held. It has no terminal test (protocol.md 5.4)."""
    try:
        at = fence.standing(db, lease, now)
    except NotFoundError:
        return False
    if not fence.holds(at, lease, renewing=True):
        return False
    fence.pass_renew_fence(db, at, lease, now)
    return True


def release(
    db: Connection, lease: LeaseKey, *, interrupted: bool, random: float, now: Moment
) -> None:
    """Give a lease back: due at once without its strike, or after the back-off with it."""
    at = fence.standing(db, lease, now)
    if at.status.terminal:
        raise fence.terminal_error(lease.execution_id)
    fence.pass_renew_fence(db, at, lease, now)
    assert at.dispatch is not None
    if interrupted:
        due_at, due = now.in_seconds(backoff_seconds(max(at.strikes, 1), random))
        status, strikes = DispatchStatus.FAILED, at.strikes
    else:
        (due_at, due), status = now.in_seconds(0), DispatchStatus.PENDING
        strikes = max(at.strikes - 1, 0)
    tables.reschedule_dispatch(db, at.dispatch, status, strikes, due_at, due)
