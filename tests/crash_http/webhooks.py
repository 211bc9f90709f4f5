"""Webhooks that were captured, sent again."""

from __future__ import annotations

import http.client
from collections.abc import Iterable

from support.lossy_line import Sent

from .processes import AgentProcess

__all__ = ["send_again"]


def send_again(sent: Sent, to: AgentProcess, without: Iterable[str] = ()) -> int:
    """What the agent's process answers. ``without``: headers that are left out."""
    headers = {name: value for name, value in sent.headers.items() if name not in set(without)}
    connection = http.client.HTTPConnection("127.0.0.1", to.port, timeout=20)
    connection.request(sent.method, sent.target, sent.body, headers)
    status = connection.getresponse().status
    connection.close()
    return status
