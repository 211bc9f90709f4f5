"""Names of parametrized tests that are the same in every process that collects them."""

from __future__ import annotations

__all__ = ["label"]


def label(value: object) -> str:
    """``value`` in a test's name: by its class, since what it prints may differ by process."""
    return str(getattr(value, "__name__", type(value).__name__))
