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
from .store import Connection, queue, tables
from .store.owners import Owner
from .store.rows import REMOTE, Standing

__all__ = [
    "Claim",
    "Claimer",
    "claim",
    "delivered",
    "release",
    "renew",
    "take",
    "undelivered",
]

DISPATCH_EXHAUSTED = "dispatch_exhausted"

_LONGEST_REASON = 1000


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
    deadline_due: float | None
    """When the execution's time is over, on the boot-time clock."""


def claim(
    db: Connection,
    execution_id: str,
    claimer: Claimer,
    lease_seconds: float,
    now: Moment,
) -> Claim | None:
    """Take the lease of an execution for a handler in this process, if it is free."""
    won = take(db, execution_id, claimer, lease_seconds, now)
    if won is not None:
        delivered(db, won.lease, now)
    return won


def take(
    db: Connection,
    execution_id: str,
    claimer: Claimer,
    lease_seconds: float,
    now: Moment,
    *,
    remote: bool = False,
) -> Claim | None:
    """Take the lease of an execution, for this process or for a ``remote`` agent.

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
    if dispatch.status is DispatchStatus.IN_FLIGHT:
        queue.leave_notice(db, execution.n)
    seconds = tables.agent_lease_seconds(db, execution.agent_id) or lease_seconds
    owner = REMOTE if remote else claimer.owner.present(db)
    tables.claim_dispatch(db, dispatch.n, owner, seconds, now.monotonic)
    lease = LeaseKey(execution_id, dispatch.id, dispatch.attempt + 1)
    recorded = tables.count_steps(db, execution.n)
    return Claim(lease, seconds, recorded, now.monotonic, execution.deadline_due)


def delivered(db: Connection, lease: LeaseKey, now: Moment) -> None:
    """The attempt has reached its agent. The lease stays as it is."""
    at = fence.standing(db, lease, now)
    if at.dispatch is None:
        return
    _tell(db, at, "dispatch.acked", lease, now)
    if at.attempt == lease.attempt:
        queue.delivered(db, at.dispatch)


def undelivered(
    db: Connection, lease: LeaseKey, reason: str, *, counts: bool, random: float, now: Moment
) -> bool:
    """The attempt could not be delivered: it is tried again after the back-off, or was the last.

    Unless somebody has asked under it: then it has arrived, only the answer was lost, and nothing
    is done. Whether it could not be delivered. ``reason``: why, for people. ``counts``: whether its
    strike stands (design, Dispatches).
    """
    at = fence.standing(db, lease, now)
    if at.attempt == lease.attempt and at.runner is not None:
        return False
    if at.status.terminal or not fence.holds(at, lease, renewing=True):
        return True
    assert at.dispatch is not None
    _tell(db, at, "dispatch.failed", lease, now, reason=reason[:_LONGEST_REASON])
    strikes = at.strikes if counts else max(at.strikes - 1, 0)
    dispatch = tables.open_dispatch(db, at.execution)
    assert dispatch is not None
    if exhausted(attempt=at.attempt, strikes=strikes, max_attempts=dispatch.max_attempts):
        executions.end(db, at.execution, ExecutionStatus.FAILED, now, reason=DISPATCH_EXHAUSTED)
        return True
    seconds = backoff_seconds(queue.failures(db, at.dispatch) + 1, random)
    queue.undelivered(db, at.dispatch, strikes, *now.in_seconds(seconds))
    return True


def _tell(
    db: Connection, at: Standing, kind: str, lease: LeaseKey, now: Moment, **more: str
) -> None:
    detail = json.dumps({"dispatch_id": lease.dispatch_id, "attempt": lease.attempt, **more})
    tables.append_events(db, at.execution, at.last_seq, [(kind, None, detail)], now.wall)


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
    db: Connection,
    lease: LeaseKey,
    *,
    interrupted: bool,
    strike: bool,
    random: float,
    now: Moment,
) -> bool:
    """Give a lease back: due at once without its strike, or after the back-off, with it or not.

    Without strikes the back-off grows with the attempts, whose number alone bounds them then.

    Whether the execution still lives. One that its deadline has ended just now stays so, therefore
    this is an answer: an exception would undo it.
    """
    at = fence.standing(db, lease, now)
    if at.status.terminal:
        return False
    fence.pass_renew_fence(db, at, lease, now)
    assert at.dispatch is not None
    if interrupted:
        failed = max(at.strikes, 1) if strike else lease.attempt
        due_at, due = now.in_seconds(backoff_seconds(failed, random))
        status = DispatchStatus.FAILED
    else:
        (due_at, due), status = now.in_seconds(0), DispatchStatus.PENDING
    strikes = at.strikes if interrupted and strike else max(at.strikes - 1, 0)
    tables.reschedule_dispatch(db, at.dispatch, status, strikes, due_at, due)
    return True
