"""A development aid: warns of HTTP that a handler makes outside any effect."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import warnings
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from ..context import current
from ..errors import NoActiveExecution
from .httpx_wire import LIBRARIES
from .patches import Interest, Seam
from .recorder import busy

__all__ = ["UnrecordedRequest", "follow_environment", "warn_unrecorded"]

SWITCH = "REBUNO_DEV"

_PACKAGE = __name__.partition(".")[0]


class UnrecordedRequest(UserWarning):
    """HTTP was made inside a handler, outside any effect: it will be made again on a resume."""


def warn_unrecorded() -> Watch:
    """Warn, with file and line, of every HTTP request that a handler makes outside any effect,
    from now on until ``stop()`` or the end of a ``with`` block.

    Sees what goes through ``http.client`` (requests, urllib, botocore), httpx2 and httpx, their
    clients for asyncio included. The
    environment variable ``REBUNO_DEV=1`` does the same for every handler that runs.
    """
    return Watch()


class Watch:
    """What ``warn_unrecorded`` has switched on."""

    def __init__(self) -> None:
        _interest.add(self)

    def stop(self) -> None:
        """Warn no more."""
        _interest.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def follow_environment() -> None:
    """Switch it on, once, where the environment says so."""
    if os.environ.get(SWITCH) == "1" and not _interest.held:
        Watch()


def _watched(send: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(send)
    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _interest.held and not busy() and _is_in_a_handler():
            _warn(sys._getframe(1))
        return send(self, *args, **kwargs)

    return watched


def _is_in_a_handler() -> bool:
    try:
        return not current("a request").in_effect
    except NoActiveExecution:
        return False


def _warn(frame: FrameType) -> None:
    found: FrameType | None = frame
    while found is not None and _is_library(found):
        if _is_our_own(found):
            return  # What the kernel is told goes over HTTP too.
        found = found.f_back
    where = found or frame
    warnings.warn_explicit(
        "HTTP inside a handler, outside any effect: it is not recorded, so it is made again each"
        " time the execution resumes. Put it into a tool or step(), or for a model use a client of"
        " rebuno_sync.llm.",
        UnrecordedRequest,
        where.f_code.co_filename,
        where.f_lineno,
        registry=where.f_globals.setdefault("__warningregistry__", {}),
    )


@functools.cache
def _not_yours() -> tuple[str, ...]:
    """Where libraries are."""
    return tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib"))


def _is_library(frame: FrameType) -> bool:
    inside = str(frame.f_globals.get("__name__", "")).partition(".")[0] == _PACKAGE
    return inside or frame.f_code.co_filename.startswith(_not_yours())


def _is_our_own(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return name.startswith(_PACKAGE + ".") and not name.startswith(_PACKAGE + ".llm.")


_interest: Interest[Watch] = Interest(
    [
        Seam("http.client", "HTTPConnection.putrequest", _watched),
        *(Seam(name, "HTTPTransport.handle_request", _watched) for name in LIBRARIES),
        *(Seam(name, "AsyncHTTPTransport.handle_async_request", _watched) for name in LIBRARIES),
    ]
)
