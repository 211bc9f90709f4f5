"""Uses an agent and a client, forks, and uses both in every child."""

import os

from support.children import arguments, say

import rebuno_sync as rebuno
from rebuno_sync.serving import Server

given = arguments()


@rebuno.tool
def add(a: int, b: int) -> int:
    return a + b


def handler() -> int:
    total = 0
    for number in range(5):
        total = add(total, number)
    return total


agent = rebuno.Agent("forked", secret=given["secret"], base_url=given["url"])
agent.bind(handler)
app = agent.app
client = rebuno.Client(given["url"], given["token"])


def serve_one() -> int:
    """Serve here, have an execution delivered, and give its output."""
    server = Server(app, "127.0.0.1", 0)
    client.register_agent("forked", server.url + "/webhook", given["secret"])
    output = client.run("forked", timeout=20)
    agent.join(10)
    server.close()
    return int(output)


outputs = [serve_one()]
for _ in range(given["children"]):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        os.write(writing, str(serve_one()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        outputs.append(int(pipe.read()))
    os.waitpid(child, 0)
say(outputs)
