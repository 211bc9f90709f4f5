"""Names of modules that are the same whether a file is run or imported."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["MAIN_NAMES", "module_name"]

MAIN_NAMES = ("__main__", "__mp_main__")
"""What a module is called that was run, and in a spawned child."""


def module_name(module: str) -> str:
    """``module`` itself; the name under which the program's own file could be imported, for
    ``__main__`` (and for ``__mp_main__``, as ``multiprocessing`` calls it in a spawned child)."""
    if module not in MAIN_NAMES:
        return module
    main = sys.modules.get(module)
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else "__main__"
