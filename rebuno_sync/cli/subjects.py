"""Commands about one subject each, ``rebuno-sync keys list``: how they are described and done."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

from .asked import Operator, add_kernel_options, asked
from .failing import told
from .signalled import interrupted_at_once

__all__ = ["Commands", "Subject", "run"]

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Work = Callable[[argparse.Namespace], int | None]
Asking = Callable[[Operator, argparse.Namespace], int | None]

_EXIT_CODES = (
    "Exit code: 0 when it was done; 1 when it was refused, cannot be done, or is not as expected;"
    " 2 for bad usage; 130 for Ctrl-C."
)


class Subject:
    """A command that has commands of its own."""

    def __init__(self, commands: Commands, name: str, about: str) -> None:
        parser = commands.add_parser(name, help=about, description=f"{_sentence(about)}")
        self._name = name
        self._actions = parser.add_subparsers(
            dest="action", metavar="ACTION", title="actions", required=True
        )

    def asks(self, name: str, work: Asking, about: str) -> argparse.ArgumentParser:
        """Describe a command that asks a kernel; ``work`` gets it open."""

        def do(options: argparse.Namespace) -> int | None:
            with asked(options) as kernel:
                return work(kernel, options)

        parser = self.does(name, do, about)
        add_kernel_options(parser)
        return parser

    def does(self, name: str, work: Work, about: str) -> argparse.ArgumentParser:
        """Describe a command; ``work`` does it and gives the exit code, 0 unless it says so."""
        parser = self._actions.add_parser(
            name, help=about, description=_sentence(about), epilog=_EXIT_CODES
        )
        parser.add_argument("--json", action="store_true", help="print JSON, for programs")
        title, listed_by = f"{self._name} {name}", f"{self._name} list"
        parser.set_defaults(
            run=lambda options: told(title, lambda: work(options), listed_by=listed_by)
        )
        return parser


def run(options: argparse.Namespace) -> int:
    """Do what ``options`` say. Each change is one transaction, so Ctrl-C needs to undo nothing."""
    with interrupted_at_once():
        code: int = options.run(options)
    return code


def _sentence(about: str) -> str:
    return f"{about[0].upper()}{about[1:]}."
