"""``rebuno-sync``: the commands, and how each of them ends."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from types import FrameType

from . import copies, demo, kernel

__all__ = ["main"]

_INTERRUPTED = 128 + signal.SIGINT
_NOBODY_READS = 128 + signal.SIGPIPE


_COMMANDS = {"demo": demo.run, "kernel": kernel.run, **copies.COMMANDS}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. The exit code: 0, 1 (not as promised), 2 (bad usage), 128 + a signal."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        with _ending_on_signals():
            code = _COMMANDS[options.command](options)
            sys.stdout.flush()
            return code
    except KeyboardInterrupt:
        print("\nrebuno-sync: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has gone (``| head``); the flush at exit must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _NOBODY_READS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rebuno-sync", description="Durable execution for ordinary blocking Python."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    demo.add_to(commands)
    kernel.add_to(commands)
    copies.add_to(commands)
    return parser


def _version() -> str:
    try:
        return version("rebuno-sync")
    except PackageNotFoundError:
        return "(not installed: running from its sources)"


@contextmanager
def _ending_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind, so that no child process and no folder is left behind."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
