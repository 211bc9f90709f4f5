"""``rebuno-sync demo``: an agent is killed half way and resumes; were the promises kept?"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import RebunoError
from .demo_course import Task, demonstrate
from .demo_inputs import UnusableText, check, packaged
from .demo_process import DemoFailed
from .demo_promises import Promise, count
from .demo_screen import Screen

if TYPE_CHECKING:
    from argparse import ArgumentParser, _SubParsersAction

__all__ = ["add_to", "run", "show"]

_QUESTION = "What happens to an effect when the process is killed?"
_PACE_SECONDS = 0.25
_LONGEST_PACE_SECONDS = 60.0

_DESCRIPTION = """\
An agent reads texts, calls tools and asks a model. Half way its process is killed with SIGKILL;
a second process resumes. Every effect is shown as it runs or is replayed, and at the end
what the library promises is checked against what happened."""

_EPILOG = """\
With OPENAI_API_KEY set, that provider is asked (OPENAI_BASE_URL, OPENAI_MODEL); otherwise a small
extractive one that the demo serves on 127.0.0.1. Exit code: 0 when everything was as promised,
1 when not, 2 for a text that cannot be read."""


def add_to(commands: _SubParsersAction[ArgumentParser]) -> None:
    """Add the command to those of ``rebuno-sync``."""
    parser = commands.add_parser(
        "demo",
        help="see an agent killed and resumed",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="FILE",
        help="text files to read (default: documentation that comes with the package)",
    )
    parser.add_argument("--question", default=_QUESTION, help="what to ask (default: %(default)s)")
    parser.add_argument(
        "--pace",
        type=_seconds,
        default=_PACE_SECONDS,
        metavar="SECONDS",
        help="by how much each effect is slowed down, to be seen (default: %(default)s)",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="a new or empty folder for the kernel's file and the report, which is kept",
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= _LONGEST_PACE_SECONDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of seconds from 0 to {_LONGEST_PACE_SECONDS:.0f}"
        )
    return value


def run(options: argparse.Namespace) -> int:
    """Run the command; the exit code."""
    question = " ".join(options.question.split())
    try:
        paths, remarks = check(options.paths) if options.paths else (packaged(), [])
        if not question:
            raise UnusableText("the question is empty; ask something")
        with _folder(options.keep) as folder:
            screen = Screen.of(sys.stdout)
            promises = demonstrate(screen, Task(paths, question, options.pace, folder), remarks)
            code = show(screen, promises)
            screen.line()
            kept = options.keep is not None
            end = f"Kept: {folder}" if kept else "Its files are removed; --keep FOLDER keeps them."
            screen.paragraph(end, "dim", indent=0)
            return code
    except UnusableText as error:
        return _end(f"error: {error}", 2)
    except BrokenPipeError:
        raise
    except (DemoFailed, RebunoError, OSError) as error:
        return _end(f"failed: {error}", 1)


def show(screen: Screen, promises: Sequence[Promise]) -> int:
    """Show each verdict; 1 when a promise was broken, else 0."""
    screen.heading("Promised, and seen")
    for promise in promises:
        verdict = "ok" if promise.kept else "BROKEN"
        text = promise.text if promise.kept else f"{promise.text} Instead: {promise.broken}."
        screen.paragraph(text, verdict, indent=9, label=f"  {verdict}")
    broken = sum(not promise.kept for promise in promises)
    if broken:
        return _end(f"{count(broken, 'promise')} of {len(promises)} broken", 1)
    return 0


def _end(message: str, code: int) -> int:
    print(f"rebuno-sync demo: {message}", file=sys.stderr)
    return code


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="rebuno-demo-") as folder:
            yield Path(folder)
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
        taken = any(keep.iterdir())
    except OSError as error:
        raise UnusableText(f"--keep {keep}: {error.strerror or error}") from error
    if taken:
        raise UnusableText(f"--keep {keep} is not empty; name a new folder")
    yield keep.absolute()
