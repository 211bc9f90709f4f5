"""Checks that come before a rule's own work, in the protocol's order (protocol.md 5.4)."""

from __future__ import annotations

from ..errors import APIError, api_error
from ..types import LeaseKey
from . import executions
from .lifecycle import fence_holds
from .moment import Moment
from .store import Connection, tables
from .store.rows import Standing

__all__ = [
    "holds",
    "not_found",
    "pass_check_fence",
    "pass_renew_fence",
    "standing",
    "superseded_error",
    "terminal_error",
]

_RENEWAL_SHARE = 20
"""A renewal younger than a twentieth of its lease is not written again."""


def not_found(what: str, name: str) -> APIError:
    return api_error("not_found", f"not found: {what} {name}", 404)


def terminal_error(execution_id: str) -> APIError:
    return api_error(
        "execution_terminal", f"execution terminal: {execution_id} has already ended", 409
    )


def superseded_error(lease: LeaseKey) -> APIError:
    return api_error(
        "lease_superseded",
        f"dispatch lease superseded: attempt {lease.attempt} of dispatch {lease.dispatch_id} no"
        f" longer holds execution {lease.execution_id}, or another process runs it",
        409,
    )


def standing(db: Connection, lease: LeaseKey, now: Moment) -> Standing:
    """Where the lease's execution stands; one past its deadline is ended first."""
    found = tables.standing(db, lease)
    if found is None:
        raise not_found("execution", lease.execution_id)
    due = found.deadline_due
    if due is not None and due <= now.boottime and not found.status.terminal:
        executions.expire(db, lease.execution_id, now)
        found = tables.standing(db, lease)
        assert found is not None
    return found


def pass_renew_fence(db: Connection, at: Standing, lease: LeaseKey, now: Moment) -> None:
    """The lease is held; it counts from now."""
    if not holds(at, lease, renewing=True):
        raise superseded_error(lease)
    assert at.dispatch is not None
    if now.monotonic - at.renewed >= at.lease_seconds / _RENEWAL_SHARE:
        tables.renew(db, at.dispatch, now.monotonic)


def pass_check_fence(at: Standing, lease: LeaseKey) -> None:
    """The attempt is the newest; its dispatch may have been retired since."""
    if not holds(at, lease, renewing=False):
        raise superseded_error(lease)


def holds(at: Standing, lease: LeaseKey, *, renewing: bool) -> bool:
    return fence_holds(at.dispatch_status, at.attempt, lease.attempt, renewing=renewing)
