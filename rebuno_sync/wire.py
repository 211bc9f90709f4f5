"""What travels on the wire is read leniently: a newer kernel may add keys."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

__all__ = ["Wire"]


class Wire(BaseModel):
    """The base of what a kernel answers. Its repr leaves out what is not set."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            field = type(self).model_fields.get(name or "")
            if field is None or value != field.default:
                yield name, _short(value)


def _short(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, StrEnum) else value
