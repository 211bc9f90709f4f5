"""The kernel over HTTP: a WSGI app (protocol.md 1, 2)."""

from .app import KernelApp

__all__ = ["KernelApp"]
