"""Values and exceptions of every sort that effects return, take and raise."""

from __future__ import annotations

import datetime as dt
import enum
import subprocess
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx2
import openai
import pydantic
import requests

from rebuno_sync import ToolError

__all__ = ["EXCEPTIONS", "REFUSED", "TYPED", "http_error", "rate_limit_error", "seen"]


class Colour(enum.Enum):
    RED = "red"


class Item(pydantic.BaseModel):
    name: str
    prices: tuple[Decimal, ...] = ()
    seen: set[str] = set()


@dataclass
class Point:
    x: int
    tags: frozenset[str]


TYPED: list[tuple[object, object]] = [
    (Item, Item(name="a", prices=(Decimal("1.10"),), seen={"x", "y"})),
    (Point, Point(1, frozenset({"a"}))),
    (Colour, Colour.RED),
    (uuid.UUID, uuid.UUID(int=7)),
    (Decimal, Decimal("0.10")),
    (dt.datetime, dt.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=dt.UTC)),
    (dt.datetime, dt.datetime(2026, 1, 2, 3, 4, 5)),  # noqa: DTZ001
    (dt.date, dt.date(2026, 1, 2)),
    (dt.timedelta, dt.timedelta(days=1, microseconds=3)),
    (set[int], {3, 1, 2}),
    (bytes, b"\x00\xff"),
    (Path, Path("a/b")),
    (tuple[int, str], (1, "a")),
    (list[Item], [Item(name="b")]),
    (dict[int, str], {1: "a", 20: "b"}),
    (int, 2**53 + 1),
    (int, -(2**200)),
    (float, 1e-05),
    (str, "nul \x00 and €"),
    (None, None),
]


REFUSED: list[tuple[object, str]] = [
    (float("nan"), "args.value: nan is not JSON"),
    ({"a": [1.0, float("inf")]}, "args.value.a[1]: inf is not JSON"),
    ({1: "a"}, "args.value: the key 1 is not a str"),
    (["x", "\ud800"], "args.value[1]: the text holds a lone surrogate"),
    ({"deep": [{"lock": threading.Lock()}]}, "args.value.deep[0].lock: lock is not JSON"),
    (dt.date(2026, 1, 2), "args.value: date is not JSON"),
    ({1, 2}, "args.value: set is not JSON"),
]
"""Arguments without an annotation, and the beginning of what is said of them."""


class MyError(Exception):
    """Its ``__init__`` takes what ``Exception.__reduce__`` does not give back."""

    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class HoldsALock(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class CannotBePrinted(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class ArgumentsOfItsOwn(Exception):
    def __init__(self) -> None:
        super().__init__(threading.Lock())

    def __reduce__(self) -> Any:
        raise RuntimeError("not to be pickled")


def http_error() -> Exception:
    response = requests.Response()
    response.status_code = 503
    return requests.HTTPError("503 Server Error", response=response)


def rate_limit_error() -> Exception:
    request = httpx2.Request("POST", "https://provider.invalid/v1")
    response = httpx2.Response(429, request=request, headers={"retry-after": "2"})
    return openai.RateLimitError("slow down", response=response, body={"code": "rate"})


def group() -> Exception:
    return ExceptionGroup("both", [ValueError("a"), MyError(5, detail="x")])


def chained() -> Exception:
    error = KeyError("key")
    error.__cause__ = ValueError("root")
    return error


EXCEPTIONS: list[Callable[[], Exception]] = [
    lambda: MyError(5, detail="x"),
    http_error,
    rate_limit_error,
    lambda: subprocess.CalledProcessError(3, ["ls", "-l"], output=b"out", stderr=b"err"),
    group,
    lambda: HoldsALock("held"),
    CannotBePrinted,
    ArgumentsOfItsOwn,
    chained,
    lambda: FileNotFoundError(2, "No such file", "a.txt"),
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    lambda: ValueError("lone \ud800 and nul \x00"),
    lambda: ValueError("x" * 200_000),
    lambda: StopIteration(3),
    lambda: Exception(),
    lambda: ToolError("of another", "other", "id"),
    lambda: AssertionError(),
]


def seen(error: object) -> tuple[object, ...]:
    """What can be told of a ``ToolError`` and its cause."""
    assert isinstance(error, ToolError)
    cause = error.__cause__
    told: tuple[object, ...] = (str(error), error.tool_id, error.step_id, error.error_type)
    told += (error.traceback, error.reason)
    if cause is not None:
        told += (type(cause), str(cause), repr(cause.args), repr(sorted(vars(cause))))
    return told
