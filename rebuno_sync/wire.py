"""What travels on the wire is read leniently: a newer kernel may add keys."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Wire"]


class Wire(BaseModel):
    """The base of what a kernel answers."""

    model_config = ConfigDict(frozen=True, extra="ignore")
