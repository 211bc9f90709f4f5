"""An agent over HTTP, in three terminals.

rebuno-sync kernel --db kernel.db
REBUNO_URL=http://127.0.0.1:8080 python examples/service.py        # serves, until Ctrl-C
REBUNO_URL=http://127.0.0.1:8080 python examples/service.py Ada    # asks for one execution

PORT is the agent's (5000 unless set), REBUNO_AGENT_SECRET what it shares with the kernel.
"""

import os
import sys

import rebuno_sync as rebuno

PORT = int(os.environ.get("PORT", "5000"))
SECRET = os.environ.get("REBUNO_AGENT_SECRET", "change me")


@rebuno.tool
def look_up(name: str) -> str:
    return name.title()


def greet(name: str) -> str:
    return f"Hello {look_up(name)}"


def ask(name: str) -> None:
    with rebuno.Client() as client:
        client.register_agent("greeter", f"http://127.0.0.1:{PORT}/webhook", SECRET)
        print(client.run("greeter", {"name": name}, timeout=60))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        ask(sys.argv[1])
    else:
        rebuno.Agent("greeter", secret=SECRET).run(greet, host="127.0.0.1", port=PORT)
