"""The embedded kernel: one SQLite file, one machine, many processes."""

from .embedded import Kernel

__all__ = ["Kernel"]
