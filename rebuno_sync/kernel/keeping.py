"""``Keeping``: an operator's methods for what has to outlive a file."""

from __future__ import annotations

import os
from pathlib import Path

from ..types import Execution
from .core import Core
from .store.copying import backup
from .views import execution_view

__all__ = ["Keeping"]


class Keeping:
    """What ``Kernel`` says about copies of its file, and of single executions."""

    core: Core

    def backup(self, target: str | os.PathLike[str]) -> None:
        """Copy the file as it is now to ``target``, which must not exist, while others use it.

        The copy is a kernel's file (mode 0600, the secrets of agents are in it too). Copying the
        file by other means loses what is in the log beside it. Raises ``StorageError``.
        """
        backup(self.core.store().database, Path(target).expanduser().absolute())

    def export_execution(self, execution_id: str) -> str:
        """All that is recorded of an execution, as JSON lines for ``import_execution``.

        Raises ``NotFoundError``.
        """
        return self.core.transfer.export(execution_id)

    def import_execution(self, text: str) -> Execution:
        """Take in what ``export_execution`` gave, of another file; it keeps its id.

        One that had not ended goes on here, so see to it that it does not go on there. Raises
        ``ValidationError`` for anything else, ``NotFoundError`` when its agent is not registered,
        ``ConflictError`` when the execution or its key is here already, or its session has another
        one here that has begun and not ended.
        """
        return execution_view(self.core.transfer.take_in(text))
