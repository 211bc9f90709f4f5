"""Which bodies really ran: a line in a file for each that begins.

The demo's own evidence. It owes nothing to the kernel, and what is written survives a SIGKILL.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import rebuno_sync as rebuno

from ..canonical import canonical_dumps

__all__ = ["Body", "Ledger", "begin", "call_of", "counted", "read_ledger", "write_in"]

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Body:
    """One body that began. ``call``: what was called with which arguments."""

    attempt: str
    call: str
    target: str


def call_of(target: str, args: str) -> str:
    """Names a call by its target and the canonical text of its arguments."""
    return f"{target}:{hashlib.sha256(args.encode()).hexdigest()[:16]}"


class Ledger:
    """Where this process writes down its bodies. ``pace``: seconds by which each is slowed down."""

    def __init__(self, path: Path, attempt: str, pace: float, begun: Callable[[str], None]) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._attempt = attempt
        self._begun = begun
        self.pace = pace

    def begin(self, call: str, target: str) -> None:
        """Write a body down, on the disk before it goes on."""
        os.write(self._file, json.dumps([self._attempt, call, target]).encode() + b"\n")
        os.fsync(self._file)
        self._begun(target)


_ledger: Ledger | None = None


def write_in(ledger: Ledger) -> None:
    """Write the bodies of this process there from now on."""
    global _ledger
    _ledger = ledger


def begin(target: str, args: dict[str, Any]) -> None:
    """Write down a body that begins, and slow it down. Without the demo nothing happens."""
    if _ledger is not None:
        _ledger.begin(call_of(target, canonical_dumps(args, "args")), target)
        rebuno.execution().wait(_ledger.pace)


def counted(fn: Callable[P, R]) -> Callable[P, R]:
    """A body that is written down. It can be used without the demo too."""
    signature = inspect.signature(fn)

    @functools.wraps(fn)
    def body(*args: P.args, **kwargs: P.kwargs) -> R:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        begin(fn.__name__, dict(bound.arguments))
        return fn(*args, **kwargs)

    return body


def read_ledger(path: Path) -> list[Body]:
    """The bodies that began, in order."""
    if not path.exists():
        return []
    return [Body(*json.loads(line)) for line in path.read_text("utf-8").splitlines()]
