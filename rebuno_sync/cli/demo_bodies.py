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
from typing import ParamSpec, TypeVar

import rebuno_sync as rebuno

from ..canonical import canonical_dumps

__all__ = ["Body", "Ledger", "call_of", "counted", "read_ledger", "write_in"]

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


def counted(fn: Callable[P, R]) -> Callable[P, R]:
    """A body that is written down. It can be used without the demo too: then nothing is."""
    signature = inspect.signature(fn)

    @functools.wraps(fn)
    def body(*args: P.args, **kwargs: P.kwargs) -> R:
        if _ledger is None:
            return fn(*args, **kwargs)
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        call = call_of(fn.__name__, canonical_dumps(dict(bound.arguments), "args"))
        _ledger.begin(call, fn.__name__)
        rebuno.execution().wait(_ledger.pace)
        return fn(*args, **kwargs)

    return body


def read_ledger(path: Path) -> list[Body]:
    """The bodies that began, in order."""
    if not path.exists():
        return []
    return [Body(*json.loads(line)) for line in path.read_text("utf-8").splitlines()]
