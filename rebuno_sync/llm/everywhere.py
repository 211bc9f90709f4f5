"""``record_all``: the clients that frameworks build for themselves."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Any, Self

from . import botocore_wire, httpx_wire, requests_wire
from .patches import Interest, Seam
from .recorder import RANDOMISED, Recorder

__all__ = ["Recording", "record_all"]

_OPTIONS = ("stream", "timeout", "verify", "cert", "proxies")


def record_all(
    *,
    hosts: Collection[str] | None = None,
    outside: str = "passthrough",
    ignore: Collection[str] = RANDOMISED,
) -> Recording:
    """Record the model calls of every ``requests``, ``httpx2``, ``httpx`` and ``botocore`` client
    of the process, from now on until ``stop()`` or the end of a ``with`` block.

    ``hosts``: record every JSON request to these hosts, and those below them, and no other.
    Without it, a request anywhere is a model call if it is JSON and names a model, in its body or
    in its path. ``outside`` and ``ignore`` as of ``rebuno_sync.http_client``; by default nothing
    happens outside an execution.
    """
    recorder = Recorder(
        "a client that record_all() records",
        outside=outside,
        ignore=ignore,
        hosts=hosts,
        only_models=hosts is None,
    )
    return Recording(recorder)


class Recording:
    """What ``record_all`` has switched on."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        _interest.add(recorder)

    def stop(self) -> None:
        """Record no more; the libraries are as they were, when nobody else records."""
        _interest.remove(self._recorder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _first(exchange: Callable[[Recorder], Any]) -> Any:
    """What the first recorder that takes the request for a model call makes of it."""
    return next((found for it in _interest.held if (found := exchange(it)) is not None), None)


def _requests(send: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(send)
    def recording(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        options = {**dict(zip(_OPTIONS, args, strict=False)), **kwargs}
        options.pop("stream", None)

        def exchange(recorder: Recorder) -> Any:
            return requests_wire.exchange(recorder, functools.partial(send, self), request, options)

        found = _first(exchange)
        return send(self, request, *args, **kwargs) if found is None else found

    return recording


def _httpx(library: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(handle: Callable[..., Any]) -> Callable[..., Any]:
        httpx = importlib.import_module(library)

        @functools.wraps(handle)
        def recording(self: Any, request: Any) -> Any:
            send = functools.partial(handle, self)
            found = _first(lambda it: httpx_wire.exchange(httpx, it, send, request))
            return send(request) if found is None else found

        return recording

    return wrap


def _botocore(send: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(send)
    def recording(self: Any, request: Any) -> Any:
        original = functools.partial(send, self)
        found = _first(lambda it: botocore_wire.exchange(it, original, request))
        return original(request) if found is None else found

    return recording


_interest: Interest[Recorder] = Interest(
    [
        Seam("requests.adapters", "HTTPAdapter.send", _requests),
        *(
            Seam(name, "HTTPTransport.handle_request", _httpx(name))
            for name in httpx_wire.LIBRARIES
        ),
        Seam("botocore.httpsession", "URLLib3Session.send", _botocore),
    ]
)
