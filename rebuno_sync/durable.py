"""Time and randomness that a replay gives again: ``sleep``, ``now``, ``uuid4``, ``random``."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar, cast

from .canonical import canonical_dumps
from .clock import SYSTEM
from .codec import codec_for
from .context import ExecutionContext, current
from .parking import wait_until
from .types import Idempotency, Proposal, StepKind

__all__ = ["now", "random", "sleep", "uuid4"]

T = TypeVar("T")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def sleep(seconds: float, *, name: str | None = None) -> None:
    """Wait that many seconds, once: what has passed of it before a restart is not waited again.

    ``seconds``: at least 0, counted on the kernel's clock from when the sleep was recorded.
    ``name``: one that is unique in the execution keeps the sleep apart from all others, whatever
    ``seconds`` is then; sleeps without one are told apart by their seconds and their order.

    A cancel wakes it at once. A sleep of a second or more is parked where the kernel can wake it
    (``wake``), once nothing else of the handler runs: it needs no thread and no lease then, and
    another attempt goes on after it. Elsewhere the attempt keeps both meanwhile. Raises
    ``ValueError`` for what is no number of seconds.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError(f"seconds must be a number, not {seconds!r}")
    if not 0 <= seconds <= sys.float_info.max:
        raise ValueError(f"seconds must be a number that is at least 0, not {seconds!r}")
    context = current("sleep()")
    identity: dict[str, object] = {"seconds": seconds} if name is None else _named(name)
    _record(context, "sleep", identity, lambda: _sleep_out(context, seconds), type(None))


def _sleep_out(context: ExecutionContext, seconds: float) -> None:
    begun_ago = context.past.seconds_since(context.around[0])
    until = SYSTEM.boottime() + seconds - min(begun_ago, seconds)
    wait_until(context, lambda: SYSTEM.boottime() >= until, until=until)


def now(*, name: str | None = None) -> datetime:
    """The time on the kernel's clock when it was first asked for, aware and in UTC.

    ``name``: as of ``sleep``; those without one are told apart by their order.
    """
    context = current("now()")
    return _record(context, "now", _named(name), lambda: _wall(context), datetime)


def _wall(context: ExecutionContext) -> datetime:
    return _EPOCH + timedelta(microseconds=context.past.wall())


def uuid4(*, name: str | None = None) -> uuid.UUID:
    """A random UUID, the same on every replay. ``name``: as of ``now``."""
    return _record(current("uuid4()"), "uuid4", _named(name), SYSTEM.uuid4, uuid.UUID)


def random(*, name: str | None = None) -> float:
    """A random number in [0, 1), the same on every replay. ``name``: as of ``now``."""
    return _record(current("random()"), "random", _named(name), SYSTEM.random, float)


def _named(name: str | None) -> dict[str, object]:
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name must be a text, not {name!r}")
    return {} if name is None else {"name": name}


def _record(
    context: ExecutionContext,
    target: str,
    identity: dict[str, object],
    run: Callable[[], T],
    kind_of_value: type[T],
) -> T:
    text = canonical_dumps(identity, target)
    proposal = Proposal(StepKind.LOCAL, target, text, Idempotency.SAFE_TO_RETRY, canonical=True)
    return cast(T, context.perform(proposal, run, codec_for(kind_of_value)))
