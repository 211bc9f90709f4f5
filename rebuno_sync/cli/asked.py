"""The kernel that an operator's command asks: a file, or one that runs somewhere."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from ..client import Client
from ..kernel import Kernel
from ..kernel.embedded import DEFAULT_PATH
from .failing import BadUsage
from .signalled import interrupted_at_once

__all__ = ["Operator", "add_kernel_options", "asked", "opened"]

Operator = Client | Kernel


def add_kernel_options(parser: argparse.ArgumentParser) -> None:
    """Describe the options that name a kernel."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--db",
        metavar="FILE",
        help=f"the kernel's file (default: $REBUNO_DB, else {DEFAULT_PATH})",
    )
    which.add_argument(
        "--kernel",
        metavar="URL",
        type=_address,
        help="a kernel that runs, instead of a file (default: $REBUNO_URL)",
    )
    parser.add_argument(
        "--token",
        metavar="T",
        type=_header,
        default=os.environ.get("REBUNO_API_KEY") or os.environ.get("REBUNO_BEARER_TOKEN") or "",
        help="its bearer token, or an API key of it (default: $REBUNO_API_KEY, else"
        " $REBUNO_BEARER_TOKEN, which other users of the machine cannot see)",
    )


@contextmanager
def asked(options: argparse.Namespace) -> Iterator[Operator]:
    """The kernel that the options name, open for the block.

    Raises ``BadUsage`` for a ``REBUNO_URL`` that is no address, ``FileNotFoundError`` for a file
    that is not there: looking at a kernel makes none.
    """
    url = options.kernel
    if url is None and options.db is None and (given := os.environ.get("REBUNO_URL")):
        try:
            url = _address(given)
        except argparse.ArgumentTypeError as error:
            raise BadUsage(f"REBUNO_URL: {error}") from None
    if url is None:
        with opened(options.db or os.environ.get("REBUNO_DB") or DEFAULT_PATH) as kernel:
            yield kernel
    else:
        with Client(url, options.token) as client:
            yield client


def opened(path: str) -> Kernel:
    """A kernel on a file, which has to be there."""
    try:
        there = Path(path).expanduser().exists()
    except RuntimeError as error:  # ~somebody who is nobody
        raise BadUsage(f"{path}: {error}") from None
    if not there:
        raise FileNotFoundError(
            f"there is no file {path}; name the kernel's file with --db, or $REBUNO_DB"
        )
    with interrupted_at_once():
        return Kernel(path)


def _address(text: str) -> str:
    try:
        parts = urlsplit(text)
        reachable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # of its port, or of its brackets
        reachable = False
    if not reachable:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no address of a kernel; write http://HOST:PORT"
        )
    return text


def _header(text: str) -> str:
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("a token cannot have such characters") from None
    return text
