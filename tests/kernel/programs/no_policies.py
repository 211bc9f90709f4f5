"""Submits a call to an agent with a policy, where the libraries for policies are missing."""

from __future__ import annotations

import sys

sys.modules["yaml"] = None  # type: ignore[assignment]

from support.children import arguments, say  # noqa: E402

from rebuno_sync.errors import APIError  # noqa: E402
from rebuno_sync.kernel import Kernel  # noqa: E402
from rebuno_sync.types import Proposal  # noqa: E402

with Kernel(arguments()["db"]) as kernel:
    claim = kernel.claim(kernel.create("agent").id)
    assert claim is not None
    try:
        kernel.agent.submit(claim.lease, Proposal("tool_call", "charge", "null"))
    except APIError as error:
        say({"code": error.code, "message": error.message, "execution": claim.lease.execution_id})
