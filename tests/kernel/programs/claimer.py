"""Tries for a while to claim what other processes run, and says how often it could."""

from __future__ import annotations

from support.children import arguments, say

from rebuno_sync.kernel import Kernel

given = arguments()
stolen = 0
with Kernel(given["db"]) as kernel:
    for _ in range(given["looks"]):
        page = kernel.list(agent_id=given["agent"], status="running", limit=8)
        stolen += sum(kernel.claim(execution.id) is not None for execution in page.executions)
say("looked a while")
say({"stolen": stolen})
