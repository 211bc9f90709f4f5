"""``rebuno-sync``: the commands, and how each of them ends."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from io import TextIOWrapper

from . import approvals, copies, demo, executions, kernel, keys, policies, subjects
from .signalled import ended_by_signals

__all__ = ["main", "make_parser"]

_CANNOT_BE_WRITTEN = 1
_INTERRUPTED = 128 + signal.SIGINT
_NOBODY_READS = 128 + signal.SIGPIPE

_SUBJECTS = {"executions": executions, "approvals": approvals, "policies": policies, "keys": keys}

_COMMANDS = {
    "demo": demo.run,
    "kernel": kernel.run,
    **dict.fromkeys(_SUBJECTS, subjects.run),
    **copies.COMMANDS,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. The exit code: 0, 1 (not as promised), 2 (bad usage), 128 + a signal."""
    try:
        with ended_by_signals():
            _print_whatever_comes()
            try:
                return _run(argv)
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()
    except KeyboardInterrupt:
        print("\nrebuno-sync: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has gone (``| head``).
        _write_no_more()
        return _NOBODY_READS
    except OSError as error:
        _write_no_more()
        print(f"rebuno-sync: the output cannot be written: {error.strerror}", file=sys.stderr)
        return _CANNOT_BE_WRITTEN


def _run(argv: Sequence[str] | None) -> int:
    parser = make_parser()
    options = parser.parse_args(argv)
    if options.command is None:
        parser.print_help(sys.stderr)
        return 2
    return _COMMANDS[options.command](options)


def make_parser() -> argparse.ArgumentParser:
    """What the commands and their options are."""
    parser = argparse.ArgumentParser(
        prog="rebuno-sync", description="Durable execution for ordinary blocking Python."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    demo.add_to(commands)
    kernel.add_to(commands)
    for subject in _SUBJECTS.values():
        subject.add_to(commands)
    copies.add_to(commands)
    return parser


def _version() -> str:
    try:
        return version("rebuno-sync")
    except PackageNotFoundError:
        return "(not installed: running from its sources)"


def _print_whatever_comes() -> None:
    """A terminal that lacks a character gets its number."""
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, TextIOWrapper):
            output.reconfigure(errors="backslashreplace")


def _write_no_more() -> None:
    """The flush at the interpreter's end must not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
