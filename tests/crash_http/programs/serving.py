"""Serving a handler at a fixed port, until a signal comes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from support.children import arguments, say

import rebuno_sync as rebuno

__all__ = ["serve"]


class _Serving(logging.Handler):
    """Says when the agent serves, which is in the log alone."""

    def emit(self, record: logging.LogRecord) -> None:
        if " takes webhooks at " in record.getMessage():
            say("serving")


def serve(handler: Callable[..., Any]) -> None:
    given = arguments()
    log = logging.getLogger("rebuno_sync")
    log.setLevel(logging.INFO)
    log.addHandler(_Serving())
    agent = rebuno.Agent(
        given["agent"],
        secret=given["secret"],
        base_url=given["kernel"],
        workers=given.get("workers", 32),
        grace=given.get("grace", 10.0),
    )
    agent.run(handler, host="127.0.0.1", port=given["port"])
