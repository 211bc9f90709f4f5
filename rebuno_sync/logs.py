"""``ExecutionFilter``: which execution, step and attempt a log record belongs to.

Nothing here installs a handler or changes a logger. The filter asks nobody for anything while a
record is on its way: a kernel's answer in the middle of one could wait for whoever logs.
"""

from __future__ import annotations

import contextlib
import logging
from weakref import WeakSet

from .context import ExecutionContext, here
from .errors import RebunoError

__all__ = ["ExecutionFilter", "learn_what_is_recorded"]


class ExecutionFilter(logging.Filter):
    """Gives each record ``execution_id``, ``step_id``, ``dispatch_attempt`` and ``replaying``.

    ``step_id`` is that of the body that runs, ``""`` in the handler itself. Outside an execution
    the three are ``""``, ``""`` and ``0``, and ``replaying`` is ``False``, so a format string may
    use them for every record. ``drop_replayed``: leave out the records that a handler makes while
    recorded steps of its execution are still unmet, since an earlier attempt made them already.

    Add it to a handler, which then sees the records of every logger::

        handler.addFilter(ExecutionFilter(drop_replayed=True))

    Fields that a record has from elsewhere (``extra=``) are left as they are. Whether an attempt
    replays is learned when it begins; a filter that is made in the middle of one takes it for new.
    """

    def __init__(self, *, drop_replayed: bool = False) -> None:
        super().__init__()
        self._drop_replayed = drop_replayed
        _filters.add(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is to be handled."""
        found = here()
        context, step_id = found or (None, "")
        replaying = context is not None and context.knows_recorded and context.replaying
        fields = {
            "execution_id": context.id if context else "",
            "step_id": step_id,
            "dispatch_attempt": context.dispatch_attempt if context else 0,
            "replaying": replaying,
        }
        record.__dict__ |= fields | record.__dict__
        return not (replaying and self._drop_replayed)


_filters: WeakSet[ExecutionFilter] = WeakSet()


def learn_what_is_recorded(context: ExecutionContext) -> None:
    """At the start of an attempt: ask what earlier ones recorded, if any filter wants to know."""
    if _filters:
        with contextlib.suppress(RebunoError):
            _ = context.replaying
