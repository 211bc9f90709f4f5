"""Decides on an approval when it is told to, and says what came of it."""

from __future__ import annotations

from pathlib import Path

from support.children import arguments, say
from support.waiting import wait_until

from rebuno_sync.errors import ConflictError
from rebuno_sync.kernel import Kernel

given = arguments()
with Kernel(given["db"]) as kernel:
    kernel.get_approval(given["approval"])
    say("ready")
    decide = kernel.deny_approval if given["denies"] else kernel.grant_approval
    wait_until(Path(given["go"]).exists, "the word to go")
    try:
        decide(given["approval"], given["name"])
        answer = given["name"]
    except ConflictError as error:
        answer = error.message
say(answer)
