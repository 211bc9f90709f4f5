"""``patched``: a change of code that old executions do not see."""

from __future__ import annotations

from typing import cast

from .canonical import canonical_dumps
from .codec import PLAIN
from .context import current
from .drift import PATCHED
from .types import Idempotency, Proposal, StepKind

__all__ = ["patched"]


def patched(name: str) -> bool:
    """Whether this execution takes the new way of a change called ``name``.

    True for an execution that had recorded nothing beyond this place when it first came here,
    False for one that had: it keeps the old way. The answer is recorded, and every later call with
    that name, in this attempt or another, gives the same.

    Call it where the ways part, before the first effect of either, in the handler's own thread.
    Raises ``TypeError`` for a name that is no text, ``NoActiveExecution`` outside an execution.
    """
    if not name or not isinstance(name, str):
        raise TypeError(f"patched() needs a name for the change, not {name!r}")
    context = current("patched()")
    text = canonical_dumps({"name": name}, "name")
    proposal = Proposal(StepKind.LOCAL, PATCHED, text, Idempotency.SAFE_TO_RETRY, canonical=True)
    past, around = context.past, context.around

    def ask() -> bool:
        return cast(bool, context.perform(proposal, lambda: past.is_behind(around), PLAIN))

    return past.patched(name, ask)
