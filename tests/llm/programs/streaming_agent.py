"""Serves an agent that reads a stream of OpenAI's SDK, until a signal comes."""

import logging

from openai import OpenAI
from support.children import arguments, say

import rebuno_sync as rebuno

given = arguments()
llm = OpenAI(api_key="k", base_url=f"{given['provider']}/v1", http_client=rebuno.httpx_client())


class Address(logging.Handler):
    """Says where the agent serves, which is in the log alone."""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if " takes webhooks at " in message:
            say(message.rpartition(" ")[2])


logging.getLogger("rebuno_sync").setLevel(logging.INFO)
logging.getLogger("rebuno_sync").addHandler(Address())


def handler() -> str:
    text = ""
    asked = [{"role": "user", "content": "Say hello."}]
    for chunk in llm.chat.completions.create(model="gpt-test", messages=asked, stream=True):
        for choice in chunk.choices:
            if word := choice.delta.content:
                text += word
                say({"read": word})
    return text


agent = rebuno.Agent("streaming", secret=given["secret"], base_url=given["url"])
agent.run(handler, host="127.0.0.1", port=0)
say("closed")
