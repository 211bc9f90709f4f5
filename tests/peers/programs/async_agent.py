"""An agent of the async SDK with two tools, served until it is killed.

Runs in an environment that has the SDK and not this project; both published releases take it.
"""

import asyncio
import json
import sys

import rebuno
from support.effect_log import EffectLog

given = json.loads(sys.argv[1])
log = EffectLog(given["log"])


@rebuno.tool
async def look_up(name: str, limit: int = 3) -> dict:
    return {"name": name, "token": log.append("look_up"), "limit": limit}


async def deliver(text: str) -> str:
    token = log.append("deliver")
    if given["hold"]:
        await asyncio.Event().wait()  # Until the process is killed.
    return f"{text} {token}"


deliver = rebuno.tool("deliver", idempotency=given["idempotency"])(deliver)


async def handler(name: str) -> dict:
    found = await look_up(name)
    chosen = await rebuno.step("choose", choose, {"among": [1, 2.5, "drei"]})
    try:
        delivered = await deliver(f"{name} {chosen}")
    except rebuno.ToolError as error:
        delivered = f"unknown: {error}"
    return {"found": found, "chosen": chosen, "delivered": delivered}


async def choose(among: list) -> object:
    log.append("choose")
    return among[-1]


agent = rebuno.Agent(given["agent"], secret=given["secret"], base_url=given["url"])
agent.run(handler, host="127.0.0.1", port=given["port"])
