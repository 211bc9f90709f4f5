"""Takes an execution, publishes pieces of one step, and ends it."""

from __future__ import annotations

from support.children import arguments

from rebuno_sync.kernel import Kernel
from rebuno_sync.types import Proposal

given = arguments()
with Kernel(given["db"]) as kernel:
    claim = kernel.claim(given["execution_id"])
    assert claim is not None
    step = kernel.agent.submit(claim.lease, Proposal("llm_call", "m", "{}")).step_id
    for seq in range(given["pieces"]):
        kernel.agent.delta(claim.lease, step, seq, f"piece {seq}")
    kernel.agent.complete_step(claim.lease, step, "1")
    kernel.agent.complete(claim.lease, "1")
