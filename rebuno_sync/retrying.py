"""How often an effect is tried, how long between two tries, and for how long one may run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from .errors import StepTimeout
from .types import Idempotency

__all__ = ["ONCE", "Bounds", "RetryPolicy", "bounds_of"]

_LONGEST_SECONDS = 1e9


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """When a failed try of an effect is followed by another.

    ``attempts``: how often it is tried at most, the first try included. ``first_wait``: seconds
    before the second try; each further wait is ``factor`` times as long, up to ``longest_wait``
    seconds. ``jitter``: the share of a wait (0 to 1) that chance may take off, so that many who
    failed together do not come back together. ``on``: the exception classes after which it is
    tried again, ``StepTimeout`` among them when it is named or one of its bases is.

    An exception that has a ``retry_after`` (seconds, as text too, or a ``timedelta``) says
    itself how long the wait is. Signals, interrupts and refusals of nested effects are never
    answered with another try. Raises ``TypeError`` or ``ValueError`` for what makes no sense.
    """

    attempts: int = 3
    first_wait: float = 0.5
    factor: float = 2.0
    longest_wait: float = 30.0
    jitter: float = 0.25
    on: type[Exception] | tuple[type[Exception], ...] = Exception

    def __post_init__(self) -> None:
        if type(self.attempts) is not int:
            raise TypeError(f"attempts must be a whole number, not {self.attempts!r}")
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, the first try, not {self.attempts}")
        limits = [
            ("first_wait", self.first_wait, 0.0, _LONGEST_SECONDS),
            ("longest_wait", self.longest_wait, 0.0, _LONGEST_SECONDS),
            ("factor", self.factor, 1.0, _LONGEST_SECONDS),
            ("jitter", self.jitter, 0.0, 1.0),
        ]
        for name, value, least, most in limits:
            if type(value) not in (int, float):
                raise TypeError(f"{name} must be a number, not {value!r}")
            if not least <= value <= most:
                raise ValueError(f"{name} must be from {least:g} to {most:g}, not {value!r}")
        for cls in self.classes:
            given: object = cls
            if not (isinstance(given, type) and issubclass(given, Exception)):
                raise TypeError(f"on must be exception classes, not {cls!r}")

    @property
    def classes(self) -> tuple[type[Exception], ...]:
        """What ``on`` names."""
        return self.on if isinstance(self.on, tuple) else (self.on,)

    def wait_after(self, failed: int, error: BaseException | None, random: float) -> float | None:
        """Seconds to wait when ``failed`` tries have failed, the last with ``error``; ``None`` when
        that was the last one. ``random`` in [0, 1)."""
        if failed >= self.attempts or not isinstance(error, self.classes):
            return None
        told = _told_by(error)
        if told is not None:
            return told
        try:
            wait = min(self.first_wait * self.factor ** (failed - 1), self.longest_wait)
        except OverflowError:
            wait = self.longest_wait
        return wait * (1.0 - self.jitter * random)


def _told_by(error: BaseException) -> float | None:
    """The wait that an exception asks for."""
    try:
        told: Any = getattr(error, "retry_after", None)
    except Exception:  # A property of somebody's exception must not hide the exception.
        return None
    if isinstance(told, timedelta):
        told = told.total_seconds()
    if isinstance(told, str) and told.strip().isdecimal():
        told = int(told)
    if type(told) not in (int, float) or not told >= 0:
        return None
    return float(min(told, _LONGEST_SECONDS))


class Bounds(NamedTuple):
    """What bounds an effect: seconds for each try, and how it is tried again."""

    timeout: float | None
    retries: RetryPolicy


ONCE = Bounds(None, RetryPolicy(attempts=1))


def bounds_of(what: str, timeout: Any, retries: Any, idempotency: str) -> Bounds:
    """The bounds that an effect called ``what`` is declared with.

    Raises ``TypeError`` or ``ValueError``, naming it, for what makes no sense; among that are
    retries of an ``at_most_once`` effect after an exception that does not prove that nothing has
    happened.
    """
    return Bounds(_timeout_of(what, timeout), _policy_of(what, retries, idempotency))


def _timeout_of(what: str, timeout: Any) -> float | None:
    if timeout is None:
        return None
    if type(timeout) not in (int, float):
        raise TypeError(f"{what}: timeout must be a number of seconds, not {timeout!r}")
    if not 0 < timeout < math.inf:
        raise ValueError(
            f"{what}: timeout must be more than 0 seconds, and finite, not {timeout!r};"
            " leave it out for no limit"
        )
    return float(timeout)


def _policy_of(what: str, retries: Any, idempotency: str) -> RetryPolicy:
    if isinstance(retries, RetryPolicy):
        policy = retries
    elif type(retries) is not int:
        raise TypeError(
            f"{what}: retries must be a whole number, or a RetryPolicy, not {retries!r}"
        )
    elif retries < 0:
        raise ValueError(f"{what}: retries must not be negative, not {retries}")
    else:
        policy = RetryPolicy(attempts=retries + 1)
    if policy.attempts > 1 and idempotency == Idempotency.AT_MOST_ONCE:
        _refuse_doubt(what, policy)
    return policy


def _refuse_doubt(what: str, policy: RetryPolicy) -> None:
    for cls in policy.classes:
        if issubclass(StepTimeout, cls) or issubclass(TimeoutError, cls):
            raise ValueError(
                f"{what} is at_most_once, and its retries include {cls.__name__}, after which it"
                " may have happened. Give retries=RetryPolicy(on=...) with exceptions that prove"
                " that nothing happened, such as ConnectionRefusedError, or leave retries out"
            )
