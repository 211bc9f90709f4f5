"""LangChain's agent on LangGraph: its ``ToolNode`` runs the tools that a model asks for on threads.

In its first attempt the tools beyond the first two wait until the process is killed.
"""

from __future__ import annotations

import threading
from typing import Any

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from support.children import arguments, say
from support.effect_log import EffectLog
from support.waiting import wait_until

import rebuno_sync as rebuno
from rebuno_sync.kernel import Kernel

given = arguments()
log = EffectLog(given["log"])


@rebuno.tool
def weather(city: str) -> str:
    """The weather in a city."""
    if city not in ("Rome", "Oslo") and rebuno.execution().dispatch_attempt == 1:
        rebuno.execution().wait(60)
    return log.append(city)


def handler(url: str) -> list[list[str]]:
    http: Any = rebuno.httpx_client()
    model = ChatOpenAI(model="gpt-test", api_key="k", base_url=f"{url}/v1", http_client=http)
    agent = create_agent(model, [weather])
    messages = agent.invoke({"messages": [("user", "How is the weather?")]})["messages"]
    return [[message.type, message.content] for message in messages]


with Kernel(given["db"]) as kernel:

    def tell_when_two_are_recorded() -> None:
        wait_until(lambda: len(results()) == given["wanted"], "the results")
        say(sorted(results()))

    def results() -> list[str]:
        return [
            step.result
            for execution in kernel.list(agent_id="graph").executions
            for step in kernel.list_steps(execution.id)
            if step.kind == "tool_call" and step.status == "succeeded"
        ]

    threading.Thread(target=tell_when_two_are_recorded, daemon=True).start()
    say(
        {
            "messages": rebuno.run(
                handler, {"url": given["url"]}, key="graph", agent="graph", kernel=kernel
            )
        }
    )
