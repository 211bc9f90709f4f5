"""An effect over HTTP, against a stub kernel in another process: the agent's own cost.

    python benchmarks/http_step.py

The floor is two bare ``http.client`` POSTs with the bodies of a submit and of an outcome, unsigned.
With ``batch`` (protocol.md
17) an outcome travels with the next submit, so a step is one request.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from itertools import count

from children import script
from ratios import Rival, arguments, compare, timed

import rebuno_sync as rebuno
from rebuno_sync.heartbeat import Lease
from rebuno_sync.types import LeaseKey

NAMES = count(1)
SUBMIT = b'{"kind":"tool_call","target":"note","args":{"number":17},"idempotency":"safe_to_retry"}'
OUTCOME = b'{"result":{"number":17}}'
HEADERS = {
    "Content-Type": "application/json",
    "Rebuno-Agent-Id": "bench",
    "Rebuno-Dispatch-Id": "01a22870-0000-7000-8000-000000000000",
    "Rebuno-Dispatch-Attempt": "1",
    "Rebuno-Timestamp": "1800000000",
    "Rebuno-Signature": "v1=" + "0" * 64,
}


@rebuno.tool
def note(number: int) -> dict[str, int]:
    return {"number": number}


def floor(port: int, steps: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    path = f"/v0/executions/01a22870-0000-7000-8000-{next(NAMES):012x}/steps"
    for number in range(steps):
        for target, body in ((path, SUBMIT), (f"{path}/{number:064x}/complete", OUTCOME)):
            connection.request("POST", target, body, HEADERS)
            connection.getresponse().read()
    connection.close()


def agent_of(port: int, steps: int, extensions: str) -> rebuno.Agent:
    agent = rebuno.Agent("bench", secret="secret", base_url=f"http://127.0.0.1:{port}")

    def handler() -> None:
        for number in range(steps):
            note(number)

    agent.bind(handler)
    agent._service()._client.learn_extensions(extensions)  # type: ignore[attr-defined]
    return agent


def ours(agent: rebuno.Agent) -> None:
    key = LeaseKey(f"01a22870-0000-7000-8000-{next(NAMES):012x}", HEADERS["Rebuno-Dispatch-Id"], 1)
    outcome = agent.dispatch(Lease(key, 120.0))
    assert outcome.status == "completed", outcome


def in_threads(threads: int, work: Callable[[], None]) -> None:
    if threads == 1:
        work()
        return
    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def main() -> None:
    options = arguments(__doc__ or "")
    turns = 1 if options.quick else 7
    with script("stub_kernel.py") as port:
        for threads, steps in ((1, 500), (16, 60), (64, 20)):
            steps = 3 if options.quick else steps
            agents = {
                "rebuno_sync.tool": agent_of(port, steps, ""),
                "with request ids": agent_of(port, steps, "request-id"),
                "with request ids and batch": agent_of(port, steps, "request-id, batch"),
            }

            def measured(work: Callable[[], None], units: int = threads * steps) -> float:
                return timed(work, units)

            compare(
                f"one step over HTTP, {threads} execution(s) at once",
                Rival(
                    "floor: two bare http.client POSTs",
                    lambda n=threads, s=steps, m=measured: m(
                        lambda: in_threads(n, lambda: floor(port, s))
                    ),
                ),
                *(
                    Rival(
                        name,
                        lambda n=threads, a=agent, m=measured: m(
                            lambda: in_threads(n, lambda: ours(a))
                        ),
                    )
                    for name, agent in agents.items()
                ),
                turns=turns,
            )


if __name__ == "__main__":
    main()
