"""``Combined``: an operator's methods that are made of others, the same for every kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from .types import Execution, ExecutionPage

__all__ = ["Combined"]

_LARGEST_PAGE = 200


class _Lists(Protocol):
    def list(
        self, *, agent_id: str = "", status: str = "", limit: int = 50, cursor: str = ""
    ) -> ExecutionPage: ...


class _Creates(Protocol):
    def create(
        self, agent_id: str, input: object = None, *, idempotency_key: str | None = None
    ) -> Execution: ...

    def wait(self, execution_id: str, timeout: float | None = None) -> Execution: ...


class Combined:
    """What follows from the other methods of ``Client`` and ``Kernel``."""

    def iterate(self: _Lists, *, agent_id: str = "", status: str = "") -> Iterator[Execution]:
        """All executions, newest first, page by page as they are asked for."""
        cursor = ""
        while True:
            page = self.list(agent_id=agent_id, status=status, limit=_LARGEST_PAGE, cursor=cursor)
            yield from page.executions
            if not page.next_cursor:
                return
            cursor = page.next_cursor

    def run(
        self: _Creates,
        agent_id: str,
        input: object = None,
        *,
        idempotency_key: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """``create`` and ``wait``; the output."""
        execution = self.create(agent_id, input, idempotency_key=idempotency_key)
        return self.wait(execution.id, timeout).output
