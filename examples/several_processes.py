"""One agent in several processes: gunicorn's workers behind one address.

rebuno-sync kernel --db kernel.db
REBUNO_URL=http://127.0.0.1:8080 gunicorn --chdir examples --workers 3 --bind 127.0.0.1:5000 \
    several_processes:app
REBUNO_URL=http://127.0.0.1:8080 python examples/several_processes.py

PORT is gunicorn's (5000 unless set), REBUNO_AGENT_SECRET what the agent shares with the kernel.
The kernel delivers each execution to one of them; its lease makes sure that one at a time works
on it, and when that one dies, another goes on.
"""

import atexit
import os

import rebuno_sync as rebuno

PORT = int(os.environ.get("PORT", "5000"))
SECRET = os.environ.get("REBUNO_AGENT_SECRET", "change me")


@rebuno.tool
def double(number: int) -> dict[str, int]:
    return {"twice": 2 * number, "process": os.getpid()}


def handler(number: int) -> dict[str, int]:
    return double(number)


if __name__ == "__main__":
    with rebuno.Client() as client:
        client.register_agent("doubler", f"http://127.0.0.1:{PORT}/webhook", SECRET)
        executions = [client.create("doubler", {"number": number}) for number in range(12)]
        for execution in executions:
            print(client.wait(execution.id, timeout=60).output)
else:
    agent = rebuno.Agent("doubler", secret=SECRET)
    agent.bind(handler)
    app = agent.app
    atexit.register(agent.close)  # A worker that stops gives its leases back.
