"""What an execution asks of a kernel about resources, over HTTP (protocol.md 9.6)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from .ports import ResourceKernel
from .replies import understood
from .types import Capture, CaptureFailure, LeaseKey, Registration, ResourceView

__all__ = ["AfterOutcomes", "ResourceCalls"]


class ResourceCalls:
    """A ``ResourceKernel`` elsewhere. ``post``: sends a path and a body under a lease."""

    def __init__(self, post: Callable[[str, str, LeaseKey], Any]) -> None:
        self._post = post

    def register(self, lease: LeaseKey, wanted: Registration) -> ResourceView:
        configuration = wanted.configuration or "null"
        rest = wanted._asdict()
        del rest["configuration"]
        body = f'{json.dumps(rest)[:-1]}, "configuration": {configuration}}}'
        answer = self._post(_path(lease), body, lease)
        return understood("a resource", lambda: ResourceView.model_validate(answer))

    def bind(self, lease: LeaseKey, key: str, binding: str) -> None:
        path = f"{_path(lease)}/{quote(key, safe='')}/binding"
        self._post(path, f'{{"binding":{binding}}}', lease)

    def keep(
        self, lease: LeaseKey, captures: Sequence[Capture], failures: Sequence[CaptureFailure]
    ) -> None:
        told = {
            "captures": [it._asdict() for it in captures],
            "capture_failures": [it._asdict() for it in failures],
        }
        self._post(f"{_path(lease)}/checkpoints", json.dumps(told), lease)


def _path(lease: LeaseKey) -> str:
    return f"/v0/executions/{quote(lease.execution_id, safe='')}/resources"


class AfterOutcomes:
    """The same, once the outcomes that are held back have been sent: a capture covers them."""

    def __init__(self, kernel: ResourceKernel, flush: Callable[[], None]) -> None:
        self._kernel = kernel
        self._flush = flush

    def register(self, lease: LeaseKey, wanted: Registration) -> ResourceView:
        self._flush()
        return self._kernel.register(lease, wanted)

    def bind(self, lease: LeaseKey, key: str, binding: str) -> None:
        self._kernel.bind(lease, key, binding)

    def keep(
        self, lease: LeaseKey, captures: Sequence[Capture], failures: Sequence[CaptureFailure]
    ) -> None:
        self._flush()
        self._kernel.keep(lease, captures, failures)
