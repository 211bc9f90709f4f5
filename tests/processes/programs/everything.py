"""A kernel, an agent and a client, built when this module is imported, each used once.

``GIVEN`` in the environment: the kernel's file, and a served kernel (``url``, ``token``) with the
agent ``served``.
"""

import json
import os

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

GIVEN = json.loads(os.environ["GIVEN"])


@rebuno.tool
def add(a: int, b: int) -> int:
    return a + b


def handler(number: int) -> dict[str, int]:
    return {"sum": add(number, 1), "pid": os.getpid()}


kernel = Kernel(GIVEN["db"])
agent = rebuno.Agent("of this process", kernel=kernel)
client = rebuno.Client(GIVEN["url"], GIVEN["token"])


def run(number: int) -> dict[str, int]:
    """One execution on the kernel of this process and one on the served kernel."""
    result = rebuno.run(handler, {"number": number}, key=str(number), kernel=kernel)
    served = client.run("served", {"number": number}, timeout=60)
    assert served == number + 1, served
    return result


def use_once() -> None:
    """As a parent does before it forks."""
    assert run(-os.getpid())["sum"] == 1 - os.getpid()
    agent.bind(handler)
    created = kernel.create("of this process", {"number": 1})
    assert kernel.wait(created.id, timeout=60).output["sum"] == 2
    assert agent.join(20)
