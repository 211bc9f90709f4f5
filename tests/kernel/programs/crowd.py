"""Several threads run an execution each, step by step, while another reads what there is."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from support.children import arguments, say

from rebuno_sync.kernel import Kernel
from rebuno_sync.types import Proposal

_READ_EVERY_SECONDS = 0.05


def run_one(kernel: Kernel, given: dict[str, Any]) -> str:
    claim = kernel.claim(kernel.create(given["agent"]).id)
    assert claim is not None
    for number in range(given["steps"]):
        proposal = Proposal("tool_call", "work", json.dumps(number))
        decision = kernel.agent.submit(claim.lease, proposal)
        assert decision.decision == "proceed"
        outcome = kernel.agent.complete_step(claim.lease, decision.step_id, json.dumps(number))
        assert outcome.decision == "recorded"
    kernel.agent.renew([claim.lease])
    kernel.agent.complete(claim.lease, json.dumps(given["steps"]))
    return claim.lease.execution_id


def read_on(kernel: Kernel, done: threading.Event) -> int:
    count = 0
    while not done.wait(_READ_EVERY_SECONDS):
        for execution in kernel.list(limit=4).executions:
            kernel.events(execution.id)
            count += 1
    return count


given = arguments()
done = threading.Event()
with Kernel(given["db"]) as kernel, ThreadPoolExecutor(given["threads"] + 1) as pool:
    say("open")
    reading = pool.submit(read_on, kernel, done)
    runs = [pool.submit(run_one, kernel, given) for _ in range(given["threads"])]
    executions = [run.result() for run in runs]
    done.set()
    assert reading.result() > 0
say({"executions": executions})
