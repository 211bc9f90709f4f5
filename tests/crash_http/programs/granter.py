"""Grants approvals, each until the kernel has answered, and says what it was told of each."""

from __future__ import annotations

import threading

from support.children import arguments, say

import rebuno_sync as rebuno
from rebuno_sync.errors import ConflictError, NetworkError

GIVEN = arguments()
_PAUSE_SECONDS = 0.05


def grant(client: rebuno.Client, approval_id: str) -> str:
    while True:
        try:
            client.grant_approval(approval_id, GIVEN["name"])
        except NetworkError:
            threading.Event().wait(_PAUSE_SECONDS)  # It is away; whether it was told is unknown.
        except ConflictError as error:
            return error.message
        else:
            return "granted"


with rebuno.Client(GIVEN["url"], GIVEN["token"]) as client:
    say("ready")
    for approval_id in GIVEN["approvals"]:
        say([approval_id, grant(client, approval_id)])
say("done")
