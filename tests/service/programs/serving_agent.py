"""Serves an agent with one body until a signal comes."""

import logging
import threading

from support.children import arguments, say

import rebuno_sync as rebuno

given = arguments()


class Address(logging.Handler):
    """Says where the agent serves, which is in the log alone."""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if " takes webhooks at " in message:
            say(message.rpartition(" ")[2])


logging.getLogger("rebuno_sync").setLevel(logging.INFO)
logging.getLogger("rebuno_sync").addHandler(Address())


@rebuno.tool
def body() -> str:
    say({"body": 1})
    threading.Event().wait(given["body_seconds"])
    return "done"


def handler() -> str:
    return body()


agent = rebuno.Agent(
    given["agent"], secret=given["secret"], base_url=given["url"], grace=given["grace"]
)
agent.run(handler, host="127.0.0.1", port=0)
