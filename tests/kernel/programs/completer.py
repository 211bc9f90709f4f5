"""Claims an execution and completes it."""

from __future__ import annotations

from support.children import arguments, say

from rebuno_sync.kernel import Kernel

given = arguments()
with Kernel(given["db"]) as kernel:
    claim = kernel.claim(given["execution"])
    assert claim is not None
    kernel.agent.complete(claim.lease, '"from another process"')
say("completed")
