"""``rebuno-sync backup``, ``export`` and ``import``: copies of a file and of executions."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..kernel import Kernel
from ..kernel.embedded import DEFAULT_PATH
from .asked import opened
from .bundles import read_text
from .failing import told
from .signalled import interrupted_at_once

if TYPE_CHECKING:
    _Commands = argparse._SubParsersAction[argparse.ArgumentParser]

__all__ = ["COMMANDS", "add_to"]


def add_to(commands: _Commands) -> None:
    """Describe the commands."""
    backup = commands.add_parser(
        "backup",
        help="copy a kernel's file while it is used",
        description="Copy a kernel's file, as it is now, while other processes go on using it.",
    )
    backup.add_argument("target", metavar="TARGET", help="the copy, which must not exist yet")
    export = commands.add_parser(
        "export",
        help="write an execution as JSON lines",
        description="Write all that is recorded of an execution to the standard output.",
    )
    export.add_argument("execution_id", metavar="EXECUTION", help="its id")
    taking = commands.add_parser(
        "import",
        help="take in what export wrote",
        description="Take in an execution of another file. One that had not ended goes on here.",
    )
    taking.add_argument("source", metavar="FILE", help="what export wrote; - reads the input")
    for parser in (backup, export, taking):
        parser.add_argument(
            "--db",
            metavar="FILE",
            default=os.environ.get("REBUNO_DB") or DEFAULT_PATH,
            help=f"the kernel's file (default: $REBUNO_DB, else {DEFAULT_PATH})",
        )


def _backup(kernel: Kernel, options: argparse.Namespace) -> None:
    kernel.backup(options.target)


def _export(kernel: Kernel, options: argparse.Namespace) -> None:
    sys.stdout.write(kernel.export_execution(options.execution_id))


def _import(kernel: Kernel, options: argparse.Namespace) -> None:
    with interrupted_at_once():  # It is one transaction, which may have to wait for the file.
        print(kernel.import_execution(read_text(options.source)).id)


def _command(
    name: str, work: Callable[[Kernel, argparse.Namespace], None]
) -> Callable[[argparse.Namespace], int]:
    def ask(options: argparse.Namespace) -> None:
        with opened(options.db) as kernel:
            work(kernel, options)

    def run(options: argparse.Namespace) -> int:
        return told(name, lambda: ask(options))

    return run


COMMANDS = {
    name: _command(name, work)
    for name, work in (("backup", _backup), ("export", _export), ("import", _import))
}
"""What each does; the exit code."""
