"""Two agents on one port, in a process of their own: ``batch`` uses all that the kernel offers,
``plain`` does not see ``batch``. It prints its port.

    python benchmarks/serving_agents.py KERNEL_URL SECRET WORKERS
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import Any

import rebuno_sync as rebuno
from rebuno_sync.serving import Server

SEEN = "HTTP_REBUNO_EXTENSIONS"


@rebuno.tool
def note(number: int) -> dict[str, int]:
    return {"number": number}


def handler(steps: int) -> int:
    for number in range(steps):
        note(number)
    return steps


def main() -> None:
    url, secret, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
    agents = {
        name: rebuno.Agent(
            name, secret=secret, base_url=url, webhook_path=f"/{name}", workers=workers
        )
        for name in ("plain", "batch")
    }
    for agent in agents.values():
        agent.bind(handler)

    def app(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        name = environ["PATH_INFO"].strip("/")
        if name == "plain":
            offered = environ.get(SEEN, "").split(", ")
            environ[SEEN] = ", ".join(one for one in offered if one != "batch")
        return agents[name].app(environ, start)

    print(Server(app, "127.0.0.1", 0).port, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
