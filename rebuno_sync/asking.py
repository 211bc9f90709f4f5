"""``Asking``: what every part of an operator's client is written with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

__all__ = ["Asking"]


class Asking(ABC):
    """One request to a kernel, one answer."""

    @abstractmethod
    def _ask(
        self,
        method: str,
        path: str,
        body: str | None = None,
        *,
        query: dict[str, Any] | None = None,
        repeatable: bool | None = None,
    ) -> Any:
        """The JSON of the answer; asks again after a while where that can do nothing twice."""
