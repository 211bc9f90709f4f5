"""An agent and a client that are used once before gunicorn forks its workers."""

import json
import os
from typing import Any

import rebuno_sync as rebuno
from rebuno_sync.serving import Server

given = json.loads(os.environ["PRELOADED"])


@rebuno.tool
def add(a: int, b: int) -> int:
    return a + b


def handler(number: int) -> dict[str, Any]:
    return {"sum": add(number, 1), "pid": os.getpid()}


agent = rebuno.Agent("preloaded", secret=given["secret"], base_url=given["url"])
agent.bind(handler)
app = agent.app
client = rebuno.Client(given["url"], given["token"])

server = Server(app, "127.0.0.1", 0)
client.register_agent("preloaded", server.url + "/webhook", given["secret"])
assert client.run("preloaded", {"number": 1}, timeout=20)["sum"] == 2
agent.join(10)
server.close()
