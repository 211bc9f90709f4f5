"""Writes a good deal, then waits to be killed without having closed anything."""

from __future__ import annotations

import json
import threading

from support.children import arguments, say

from rebuno_sync.kernel import Kernel
from rebuno_sync.types import Proposal

given = arguments()
kernel = Kernel(given["db"])
claim = kernel.claim(kernel.create(given["agent"]).id)
assert claim is not None
for _ in range(given["commits"]):
    kernel.agent.submit(claim.lease, Proposal("tool_call", "work", json.dumps("x" * 4000)))
say("done")
threading.Event().wait(60)
