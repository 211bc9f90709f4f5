"""A durable run in a script: kill it wherever you like and run it again.

python examples/script.py
"""

import time

import rebuno_sync as rebuno


@rebuno.tool
def search(query: str, limit: int = 3) -> list[str]:
    print("searching", query)
    return [f"{query} {n}" for n in range(limit)]


@rebuno.tool("charge_card", idempotency="at_most_once")
def charge(order_id: str, cents: int) -> dict[str, str]:
    print("charging", cents)
    return {"receipt": f"{order_id}:{cents}"}


def handler(order_id: str) -> dict:
    started = rebuno.step("started", time.time)  # the same number on every replay
    found = search(order_id)
    receipt = charge(order_id, 100 * len(found))
    return {"started": started, "found": found, **receipt}


if __name__ == "__main__":
    print(rebuno.run(handler, {"order_id": "A-17"}, key="order-A-17"))
