"""An agent whose refunds a person approves, in one file (REBUNO_DB or .rebuno/kernel.db).

python examples/approvals/agent.py A-17      # waits; kill it, run it again, and it goes on
python examples/approvals/console.py         # in another terminal: shows what waits, and decides
"""

import sys
from pathlib import Path

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

AGENT = "refunds"
POLICY = Path(__file__).with_name("policy.yaml").read_text()


@rebuno.tool
def look_up(order: str) -> int:
    print("looking up", order)
    return 100 * len(order)


@rebuno.tool(idempotency="at_most_once")
def refund(order: str, cents: int) -> str:
    print("refunding", order)
    return f"{cents} for {order}"


def handler(order: str) -> str:
    return refund(order, look_up(order))


if __name__ == "__main__":
    order = sys.argv[1]
    with Kernel() as kernel:
        if not kernel.knows_agent(AGENT):
            kernel.register_agent(AGENT)
        kernel.set_policy(AGENT, POLICY)
        print(rebuno.run(handler, {"order": order}, key=order, agent=AGENT, kernel=kernel))
