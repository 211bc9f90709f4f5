"""How files of earlier versions become what this version knows.

``schema.sql`` is version 1, as it was released. Each change since is a script here, at the end; a
new file takes the same way as an old one.
"""

from __future__ import annotations

__all__ = ["MIGRATIONS"]

MIGRATIONS: tuple[str, ...] = ()
"""The first brings version 1 to 2, and so on. Statements end with a semicolon and a line break."""
