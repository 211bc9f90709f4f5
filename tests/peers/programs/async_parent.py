"""An agent of the async SDK that asks a subagent and goes on from a state, until it is killed.

Runs in an environment that has the SDK and not this project.
"""

import json
import sys

import rebuno
from support.effect_log import EffectLog

given = json.loads(sys.argv[1])
log = EffectLog(given["log"])
operator = rebuno.Client(given["url"], given["token"])


@rebuno.tool
async def ask(question: str) -> dict:
    log.append("ask")
    return await rebuno.subagent(given["child"], {"question": question}, client=operator)


async def handler(question: str):
    log.append("handler")
    before = await rebuno.previous()
    found = await ask(question)
    return rebuno.Result(
        output={"before": before, "found": found}, state=[*(before or []), question]
    )


agent = rebuno.Agent(given["agent"], secret=given["secret"], base_url=given["url"])
agent.run(handler, host="127.0.0.1", port=given["port"])
